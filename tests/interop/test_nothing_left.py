"""What is left on the disk of a session that has ended, however it ended: nothing but messages that
were published, and the ledger."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.broker.store.tables import Table
from holdfast.core.layout import LOG_DIRECTORY, VIEW_FILE
from holdfast.kernel import Log
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire

CLIENTS = ("device1", "app1")
"""A DEVICE client and an APPLICATION client."""
KEPT_S, BRIEF_S = 3_600, 1
RECORDS_MAXIMUM = 1_000_000
LEDGER = (Table.LOSSES, Table.COUNTERS)
"""What tells of the past, and of numbers that are used up."""


class Broker(Seen):
    """A broker that clears away each second."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            session_expiry_cron="* * * ? * *",
            application_client_identifiers="app*",
        )

    def view(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Rows of the view, read beside the broker."""
        path = self.data_directory / VIEW_FILE
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(query, arguments).fetchall()

    def recorded(self, table: str) -> list[str]:
        """The keys of a table of the view."""
        keys = self.view(f"SELECT key FROM {table}")
        # Those of Wills begin with a number.
        return sorted(key.decode(errors="replace") for (key,) in keys)

    def recorded_groups(self) -> list[str]:
        """The names of the groups on record."""
        found = self.view("SELECT json_extract(value, '$.owner') FROM queues WHERE shared")
        return sorted(name for (name,) in found)

    def parties(self) -> list[int]:
        """The parties of all sessions and groups on record."""
        found = self.view("SELECT value FROM sessions UNION SELECT value FROM queues")
        return sorted({json.loads(value)["party"] for (value,) in found})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    running.start()
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()


def connect(wire: Wire, client: str, *, clean_start: bool = False, expiry_s: int = KEPT_S) -> None:
    """CONNECT with a Will that waits for an hour."""
    wire.send(
        "connect",
        protocol_version=5,
        client_identifier=client,
        clean_start=clean_start,
        keep_alive_s=0,
        user_name=None,
        password=None,
        will={
            "topic_name": f"will/{client}",
            "payload": b"gone",
            "qos": 1,
            "retain": False,
            "properties": {"will_delay_interval": KEPT_S},
        },
        properties={"session_expiry_interval": expiry_s, "receive_maximum": 4},
    )
    wire.receive("connack")


def begin(broker: Broker, client: str) -> Wire:
    """A client with everything that a session may have, connected."""
    wire = Wire(broker.port)
    connect(wire, client)
    for identifier, (topic_filter, qos) in enumerate(
        [(f"{client}/one", 1), (f"{client}/two", 2), (f"$share/{client}/{client}/shared", 2)], 1
    ):
        assert wire.subscribe(topic_filter, qos, identifier) == [qos]
    with Wire(broker.port) as publisher:
        publisher.connect("p", clean_start=True, session_expiry_interval=0)
        for identifier, name in enumerate(["two", "one", "two", "shared"] * 3, 1):
            publisher.publish(f"{client}/{name}", b"x", qos=2, identifier=identifier)
            publisher.receive("pubrec")
            publisher.acknowledge("pubrel", identifier)
            publisher.receive("pubcomp")
        publisher.send("disconnect", reason_code=0)
    # Some of it is in flight: one message of QoS 2 received and not completed.
    first = wire.receive("publish")
    assert (first["qos"], first["topic_name"]) == (2, f"{client}/two")
    wire.acknowledge("pubrec", first["packet_identifier"])
    reach(wire, "pubrel")
    # And one that the client itself has begun to publish.
    wire.publish("of/client", b"x", qos=2, identifier=9)
    reach(wire, "pubrec")
    return wire


def reach(wire: Wire, kind: str) -> None:
    """Reads on over messages."""
    while (found := wire.next_packet()) is not None and found[0] == "publish":
        pass
    assert found is not None
    assert found[0] == kind


def drop(broker: Broker, wire: Wire, client: str) -> None:
    """The connection breaks; the session is at rest."""
    wire.__exit__()
    path = f"/v1/sessions/{quote(client)}"
    eventually(lambda: broker.get(path)["state"] == "at_rest", f"{client} at rest")


def expires(broker: Broker, wire: Wire, client: str) -> None:
    # As DISCONNECT with another interval says; with the Will, which its end sends out.
    properties = {"session_expiry_interval": BRIEF_S}
    wire.send("disconnect", reason_code=4, properties=properties)
    wire.__exit__()


def is_removed_over_http(broker: Broker, wire: Wire, client: str) -> None:
    drop(broker, wire, client)
    assert broker.ask("DELETE", f"/v1/sessions/{quote(client)}")[0] == 200


def is_removed_while_connected(broker: Broker, wire: Wire, client: str) -> None:
    assert broker.ask("DELETE", f"/v1/sessions/{quote(client)}")[0] == 200
    reach(wire, "disconnect")
    wire.__exit__()


def is_removed_on_the_command_line(broker: Broker, wire: Wire, client: str) -> None:
    drop(broker, wire, client)
    program = str(Path(sys.executable).with_name("holdfast"))
    command = [program, "session", "remove", client, "--data-dir", str(broker.data_directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{client}: removed\n"), done.stderr


def begins_anew(broker: Broker, wire: Wire, client: str) -> None:
    drop(broker, wire, client)
    with Wire(broker.port) as again:
        connect(again, client, clean_start=True, expiry_s=0)
        again.send("disconnect", reason_code=0)
        assert again.next_packet() is None


def is_taken_over_by_one_that_begins_anew(broker: Broker, wire: Wire, client: str) -> None:
    with Wire(broker.port) as again:
        connect(again, client, clean_start=True, expiry_s=0)
        again.send("disconnect", reason_code=0)
        assert again.next_packet() is None
    wire.__exit__()


def says_that_it_ends(broker: Broker, wire: Wire, client: str) -> None:
    wire.send("disconnect", reason_code=0, properties={"session_expiry_interval": 0})
    wire.__exit__()


Way = Callable[[Broker, Wire, str], None]
WAYS: list[Way] = [
    expires,
    is_removed_over_http,
    is_removed_while_connected,
    is_removed_on_the_command_line,
    begins_anew,
    is_taken_over_by_one_that_begins_anew,
    says_that_it_ends,
]


@pytest.mark.accepts("S2.14")
@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_has_ended_leaves_nothing(broker: Broker, way: Way, end: str) -> None:
    wires = {client: begin(broker, client) for client in CLIENTS}
    eventually(lambda: broker.recorded("sessions") == sorted(CLIENTS), "both on record")
    groups = sorted(f"$share/{client}/{client}/shared" for client in CLIENTS)
    eventually(lambda: broker.recorded_groups() == groups, "their groups too")
    eventually(
        lambda: broker.recorded("subscriptions") == sorted(CLIENTS), "what they subscribe to"
    )
    assert named_queues(broker) == ["tbmq.msg.app.app1", "tbmq.msg.app.shared.app1.shared"]
    parties = broker.parties()
    assert len(parties) == 4
    for client, wire in wires.items():
        way(broker, wire, client)
    eventually(lambda: not broker.recorded("sessions"), "gone from the record")
    eventually(lambda: not broker.recorded("wills"), "Wills on their way")
    eventually(
        lambda: not (broker.recorded("memberships") or broker.recorded("queues")),
        "and what they read",
    )
    assert named_queues(broker) == []
    if end == "stop":
        assert broker.stop() == 0, broker.log()
    else:
        broker.kill()
    check_disk(broker, parties)
    # And a start finds nothing of it, and brings nothing back.
    broker.start()
    assert [row["client_identifier"] for row in broker.get("/v1/sessions")["sessions"]] == []
    assert named_queues(broker) == []
    with Wire(broker.port) as wire:
        for client in CLIENTS:
            assert broker.ask("GET", f"/v1/sessions/{quote(client)}")[0] == 404
        assert not wire.connect(CLIENTS[0], session_expiry_interval=0)["session_present"]
        wire.send("disconnect", reason_code=0, properties={"session_expiry_interval": 0})
        assert wire.next_packet() is None
    assert broker.stop() == 0, broker.log()
    check_disk(broker, parties)


def named_queues(broker: Broker) -> list[str]:
    """Queues of APPLICATION clients, their own and shared ones."""
    names = [row["queue_name"] for row in broker.get("/v1/queues")["queues"]]
    return sorted(name for name in names if name.startswith("tbmq.msg.app."))


def check_disk(broker: Broker, parties: list[int]) -> None:
    """What the log has in force, once nobody writes to it."""
    log, _ = Log.open(
        str(broker.data_directory / LOG_DIRECTORY),
        segment_bytes=64 << 20,
        cache_bytes=1 << 20,
        reserve_bytes=1 << 20,
        durability="fsync",
        seed=1,
        now_us=0,
    )
    in_force = {
        (table, key): value
        for _, table, key, value in log.controls(1, RECORDS_MAXIMUM, 2**64 - 1)[0]
    }
    left = [key for key, value in in_force.items() if value and key[0] not in LEDGER]
    assert left == []
    for party in parties:
        assert log.delivery_state(party) is None
    log.close()
