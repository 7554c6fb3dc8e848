"""Several processors in one process of `holdfast processors run`, and how it ends."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.interop.device import Device
from tests.interop.processors.processor_process import ProcessorProcess
from tests.ports import HeldPort
from tests.process import BrokerProcess

SOURCE = """
from holdfast.processors.processor import Processor
from holdfast.processors.table import Column, ColumnType, Table


class Payloads(Processor):
    table = Table("payloads", (Column("payload", ColumnType.TEXT),))

    def parse(self, message):
        return [{"payload": message.payload.decode()}]
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


class Site:
    """A folder with three processors, of which one is not enabled."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        folder.mkdir()
        self.folder = folder
        self.health = HeldPort()
        self._started: list[ProcessorProcess] = []
        (folder / "payloads.py").write_text(SOURCE)
        each = {"Processor": "payloads:Payloads", "SharedSubscriptionGroup": "g"}
        section = {
            "BrokerHost": "localhost",
            "BrokerPort": broker.port,
            "UseTls": False,
            "EnvironmentId": "qa",
            "HealthPort": self.health.number,
            "Left": {**each, "ClientId": "left", "SubscribeTopics": ["a/left"]},
            "Right": {**each, "ClientId": "right", "SubscribeTopics": ["a/right"]},
            "Off": {**each, "ClientId": "off", "SubscribeTopics": ["a/#"], "Enabled": False},
        }
        (folder / "appsettings.json").write_text(json.dumps({"Mqtt": section}))

    def run(self, *names: str, **variables: str) -> ProcessorProcess:
        started = ProcessorProcess(self.folder, "appsettings.json", *names, variables=variables)
        self._started.append(started)
        return started

    def rows(self, name: str) -> list[str] | None:
        """What one of them has written; None: it was never run."""
        file = self.folder / f"{name}.db"
        if not file.exists():
            return None
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return [payload for (payload,) in database.execute("SELECT payload FROM payloads")]

    def end(self) -> None:
        for each in self._started:
            each.end()


@pytest.fixture
def site(tmp_path: Path, broker: BrokerProcess) -> Iterator[Site]:
    made = Site(tmp_path / "site", broker)
    yield made
    made.end()


@pytest.mark.accepts("S3.47")
def test_those_that_are_enabled_run_in_one_process_and_stop_together(
    site: Site, broker: BrokerProcess
) -> None:
    process = site.run()
    process.wait_ready(site.health.number)
    device = Device(broker.port, "device", clean_start=True).connect()
    device.publish("a/left", b"one", 2)
    device.publish("a/right", b"two", 1)
    device.close()
    process.wait_until(lambda: (site.rows("Left"), site.rows("Right")) == (["one"], ["two"]))
    assert process.stop() == 0
    assert site.rows("Off") is None


def test_only_those_that_are_named_run(site: Site) -> None:
    process = site.run("right")
    process.wait_ready(site.health.number)
    assert "ClientId: right-qa-" in process.log()
    assert "ClientId: left-qa-" not in process.log()
    assert process.stop() == 0
    assert site.rows("Left") is None


@pytest.mark.accepts("S3.28")
def test_who_loses_its_session_to_a_second_instance_says_so_and_ends(site: Site) -> None:
    first = site.run("Left", Mqtt__InstanceId="pod-1")
    first.wait_ready(site.health.number)
    other = HeldPort()
    second = site.run("Left", Mqtt__InstanceId="pod-1", Mqtt__HealthPort=str(other.number))
    assert first.wait_ended() == 1
    assert "holdfast: " in first.log()
    assert "left-qa-pod-1" in first.log().splitlines()[-1]
    second.wait_ready(other.number)
    assert second.stop() == 0
