"""The first processor that `holdfast processors new` writes, beside a real broker."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.interop.device import Device
from tests.interop.processors.processor_process import ProcessorProcess
from tests.ports import HeldPort
from tests.process import BrokerProcess

TOPIC = "shelf_temperatures/attic"
SHARED = "$share/shelf_temperatures-qa/shelf_temperatures/+"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command has written a first processor."""
    program = str(Path(sys.executable).with_name("holdfast"))
    command = [program, "processors", "new", "ShelfTemperatures", "--directory", "first"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "first"


@contextmanager
def running(folder: Path, broker: BrokerProcess) -> Iterator[ProcessorProcess]:
    """Until the block ends; it is ready."""
    health = HeldPort()
    variables = {
        "Mqtt__HealthPort": str(health.number),
        "Mqtt__ShelfTemperatures__BrokerPort": str(broker.port),
        "Mqtt__ShelfTemperatures__EnvironmentId": "qa",
        "Mqtt__ShelfTemperatures__InstanceId": "${POD}",
        "POD": "pod-1",
    }
    process = ProcessorProcess(folder, "appsettings.json", variables=variables)
    try:
        process.wait_ready(health.number)
        yield process
    finally:
        process.end()


def rows(folder: Path) -> list[tuple[str, float]]:
    file = folder / "shelf_temperatures.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        try:
            found = database.execute("SELECT sensor, value FROM shelf_temperatures ORDER BY value")
        except sqlite3.OperationalError:
            return []
        return found.fetchall()


@pytest.mark.accepts("S3.9", "S3.22", "S3.49", "S3.50")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_processor_that_is_written_runs_and_stops(
    folder: Path, broker: BrokerProcess, number: signal.Signals
) -> None:
    device = Device(broker.port, "sensor", clean_start=True).connect()
    with running(folder, broker) as process:
        device.publish(TOPIC, b'{"value": 21.5}', 1)
        process.wait_until(lambda: rows(folder) == [("attic", 21.5)])
        assert f"Subscribing to topic: {SHARED} " in process.log()
        assert "ClientId: shelf_temperatures-qa-pod-1," in process.log()
        assert process.stop(number) == 0
    # Its session is kept: what comes now is there when it comes back.
    device.publish(TOPIC, b'{"value": 22.5}', 2)
    device.close()
    with running(folder, broker) as process:
        process.wait_until(lambda: rows(folder) == [("attic", 21.5), ("attic", 22.5)])
        assert process.stop(number) == 0
