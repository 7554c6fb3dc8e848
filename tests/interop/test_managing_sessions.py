"""Sessions of both types of clients are looked at, disconnected and removed: over HTTP and with
`holdfast session`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire

TYPES = {"device": "DEVICE", "collector": "APPLICATION"}
"""A client of each type."""
QUEUES = {"device": None, "collector": "tbmq.msg.app.collector"}


class Broker(Seen):
    """A broker with an APPLICATION client among its clients."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, application_client_identifiers="collector")

    def session(self, *arguments: str) -> str:
        """What `holdfast session` prints."""
        program = str(Path(sys.executable).with_name("holdfast"))
        command = [program, "session", *arguments, "--data-dir", str(self.data_directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def show(self, client: str, how: str) -> dict[str, Any]:
        """One session in detail, over HTTP or with the command."""
        if how == "http":
            return self.get(f"/v1/sessions/{client}")
        found: dict[str, Any] = json.loads(self.session("show", client, "--json"))
        return found

    def listed(self, how: str, state: str) -> dict[str, str]:
        """The type of each session in this state."""
        if how == "http":
            rows = self.get("/v1/sessions", state=state)["sessions"]
        else:
            printed = self.session("list", "--state", state, "--json")
            rows = [json.loads(line) for line in printed.splitlines()]
        return {row["client_identifier"]: row["client_type"] for row in rows}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def publish(broker: Broker, client: str, count: int) -> None:
    for number in range(count):
        body = {"topic_name": f"{client}/{number}", "payload": "x", "qos": 1}
        assert broker.ask("POST", "/v1/publish", body)[0] == 200


def connected(broker: Broker, client: str) -> Wire:
    wire = Wire(broker.port)
    wire.connect(client)
    assert wire.subscribe(f"{client}/#", 1) == [1]
    return wire


@pytest.mark.accepts("S2.63", "S0.88")
@pytest.mark.parametrize("how", ["http", "command"])
@pytest.mark.parametrize("client", list(TYPES))
def test_a_session_is_listed_shown_disconnected_and_removed(
    broker: Broker, client: str, how: str
) -> None:
    with connected(broker, client) as wire:
        publish(broker, client, 1)
        sent = wire.receive("publish")
        found = broker.show(client, how)
        assert (found["client_type"], found["queue_name"]) == (TYPES[client], QUEUES[client])
        assert (found["queue_messages"], found["in_flight"]) == (1, 1)
        assert [each["topic_filter"] for each in found["subscriptions"]] == [f"{client}/#"]
        if client == "collector":
            assert found["strategy"] == "RETRY_ALL"
            (consumer,) = found["consumers"]
            assert consumer["queue_name"] == QUEUES[client]
            told = [consumer[f"pack_{name}"] for name in ("messages", "unacknowledged", "rounds")]
            assert told == [1, 1, 0]
            assert consumer["pack_first_offset"] == found["mark"]
        else:
            assert (found["strategy"], found["consumers"]) == (None, [])
        assert broker.listed(how, "connected") == {client: TYPES[client]}
        if how == "http":
            assert broker.ask("POST", f"/v1/sessions/{client}/disconnect", {})[0] == 200
        else:
            assert broker.session("disconnect", client) == f"{client}: disconnected\n"
        assert wire.receive("disconnect")["reason_code"] == 0x98
    eventually(lambda: broker.listed(how, "at_rest") == {client: TYPES[client]}, "at rest")
    publish(broker, client, 2)
    found = broker.show(client, how)
    assert (found["queue_messages"], found["in_flight"], found["state"]) == (3, 1, "at_rest")
    assert found["queue_name"] == QUEUES[client]
    if how == "http":
        assert broker.ask("DELETE", f"/v1/sessions/{client}")[0] == 200
    else:
        assert broker.session("remove", client) == f"{client}: removed\n"
    assert broker.listed(how, "any") == {}
    assert broker.ask("GET", f"/v1/sessions/{client}")[0] == 404
    with Wire(broker.port) as wire:
        assert not wire.connect(client)["session_present"]
        wire.ping()
    assert sent["payload"] == b"x"


def test_a_page_of_text_tells_people_the_same(broker: Broker) -> None:
    with connected(broker, "collector") as wire:
        publish(broker, "collector", 1)
        wire.receive("publish")
        lines = broker.session("show", "collector").splitlines()
        told = dict(line.split(maxsplit=1) for line in lines if len(line.split(maxsplit=1)) == 2)
        assert told["client_type"] == "APPLICATION"
        assert told["queue_name"] == "tbmq.msg.app.collector"
        assert (told["queue_messages"], told["in_flight"]) == ("1", "1")
        assert told["strategy"] == "RETRY_ALL"
        assert told["reads"].startswith("tbmq.msg.app.collector: 1 of 1 messages from offset ")
        assert told["subscription"] == "collector/#  QoS 1"
