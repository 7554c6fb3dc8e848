"""Losses driven again: who lost messages gets them as new ones, and is told nothing twice."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.seen import Seen
from tests.interop.test_admin import at_rest, eventually, state
from tests.interop.wire import Wire

LIMIT = 3
SENT = 10
LOST = SENT - LIMIT


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Seen]:
    """A broker whose queues at rest keep three messages."""
    running = Seen(tmp_path, queue_messages_maximum=LIMIT)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def publish(broker: Seen, topic: str, payloads: list[bytes], qos: int = 1) -> None:
    with Wire(broker.port) as wire:
        wire.connect("publisher", clean_start=True, session_expiry_interval=0)
        for number, payload in enumerate(payloads, start=1):
            wire.publish(topic, payload, qos=qos, identifier=number)
            wire.receive("puback" if qos == 1 else "pubrec")
            if qos == 2:
                wire.acknowledge("pubrel", number)
                wire.receive("pubcomp")


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def received(wire: Wire, count: int) -> list[dict[str, Any]]:
    """So many messages, each acknowledged."""
    found = [wire.receive("publish") for _ in range(count)]
    for fields in found:
        kind = "puback" if fields["qos"] == 1 else "pubrec"
        wire.acknowledge(kind, fields["packet_identifier"])
    for fields in (each for each in found if each["qos"] == 2):
        assert wire.receive("pubrel")["packet_identifier"] == fields["packet_identifier"]
        wire.acknowledge("pubcomp", fields["packet_identifier"])
    return found


def payloads(found: list[dict[str, Any]]) -> list[bytes]:
    return [fields["payload"] for fields in found]


def losses(broker: Seen, **query: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = broker.get("/v1/losses", **query)["losses"]
    return rows


def row_of(broker: Seen, client: str) -> dict[str, Any]:
    eventually(lambda: bool(losses(broker, client_identifier=client)), "a row of the ledger")
    (row,) = losses(broker, client_identifier=client)
    return row


def redrive(broker: Seen, number: object) -> tuple[int, dict[str, Any]]:
    status, answer = broker.ask("POST", f"/v1/losses/{number}/redrive", {})
    return status, answer


def lose(broker: Seen, name: str, qos: int = 1, version: int = 5) -> dict[str, Any]:
    """A session that gets the newest of its messages; its row of the ledger."""
    with Wire(broker.port, version) as wire:
        wire.connect(name)
        assert wire.subscribe(f"{name}/reads/#", qos) == [qos]
    eventually(lambda: state(broker, name) == "at_rest", f"{name} at rest")
    publish(broker, f"{name}/reads/a", numbered(SENT), qos)
    publish(broker, f"{name}/others", [b"not subscribed to"])
    with Wire(broker.port, version) as wire:
        wire.connect(name)
        assert payloads(received(wire, LIMIT)) == numbered(SENT)[LOST:]
        wire.ping()
    eventually(lambda: state(broker, name) == "at_rest", f"{name} at rest")
    return row_of(broker, name)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_connected_client_gets_what_it_lost_as_new_messages(broker: Seen, qos: int) -> None:
    row = lose(broker, "away", qos)
    assert (row["reason"], row["count"], row["redriven_at_us"]) == ("overflow", LOST, None)
    with Wire(broker.port) as wire:
        wire.connect("away")
        wire.ping()
        status, answer = redrive(broker, row["number"])
        assert status == 200
        assert (answer["messages"], answer["gone"]) == (LOST, [])
        found = received(wire, LOST)
        assert payloads(found) == numbered(LOST)
        assert {(fields["qos"], fields["dup"], fields["retain"]) for fields in found} == {
            (qos, False, False)
        }
        publish(broker, "away/reads/b", [b"new"])
        assert payloads(received(wire, 1)) == [b"new"]
        wire.ping()
    assert row_of(broker, "away")["redriven_at_us"] is not None
    assert redrive(broker, row["number"])[1]["error"] == "redriven"
    with Wire(broker.port) as wire:
        wire.connect("away")
        wire.ping()


@pytest.mark.parametrize("version", [4, 5])
def test_an_absent_client_gets_it_when_it_comes_back_also_after_a_crash(
    broker: Seen, version: int
) -> None:
    row = lose(broker, "away", version=version)
    assert redrive(broker, row["number"])[0] == 200
    broker.kill()
    broker.start()
    with Wire(broker.port, version) as wire:
        wire.connect("away")
        found = received(wire, 2)
    eventually(lambda: state(broker, "away") == "at_rest", "at rest")
    assert broker.stop() == 0, broker.log()
    broker.start()
    with Wire(broker.port, version) as wire:
        wire.connect("away")
        found += received(wire, LOST - 2)
        wire.ping()
    assert payloads(found) == numbered(LOST)
    eventually(lambda: not in_progress(broker), "the end of the re-drive")


def in_progress(broker: Seen) -> float:
    return float(broker.get("/v1/statistics")["statistics"]["holdfast_redrives"])


def test_a_group_gets_what_it_lost_each_message_once(broker: Seen) -> None:
    group = "$share/workers/jobs/#"
    at_rest(broker, "worker-1", group)
    at_rest(broker, "worker-2", group)
    publish(broker, "jobs/a", numbered(SENT))
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.port)) for _ in range(2)]
        wires[0].connect("worker-1")
        assert payloads(received(wires[0], LIMIT)) == numbered(SENT)[LOST:]
        row = row_of(broker, group)
        assert (row["reason"], row["count"]) == ("overflow", LOST)
        wires[1].connect("worker-2")
        for wire in wires:
            wire.ping()
        assert redrive(broker, row["number"])[1]["messages"] == LOST
        shares = [received(wires[0], 4), received(wires[1], 3)]
        assert sorted(payloads([*shares[0], *shares[1]])) == numbered(LOST)
        for wire in wires:
            wire.ping()


def test_what_a_client_has_published_itself_stays_left_out(broker: Seen) -> None:
    others = {"topic_filter": "reads/#", "qos": 1, "no_local": True}
    others |= {"retain_as_published": False, "retain_handling": 0}
    with Wire(broker.port) as wire:
        wire.connect("away")
        wire.send("subscribe", packet_identifier=1, subscriptions=[others])
        wire.receive("suback")
        publish(broker, "reads/a", [b"0"])
        # It is not acknowledged, so the queue stands before what the client publishes itself.
        assert wire.receive("publish")["payload"] == b"0"
        wire.publish("reads/a", b"own", qos=1, identifier=2)
        wire.receive("puback")
    eventually(lambda: state(broker, "away") == "at_rest", "at rest")
    publish(broker, "reads/a", numbered(SENT)[1:])
    with Wire(broker.port) as wire:
        wire.connect("away")
        # What is in flight stays.
        assert payloads(received(wire, LIMIT)) == [b"0", b"8", b"9"]
        row = row_of(broker, "away")
        lost = numbered(SENT)[1:-2]
        assert row["count"] == len(lost)
        assert redrive(broker, row["number"])[1]["messages"] == len(lost)
        assert payloads(received(wire, len(lost))) == lost
        wire.ping()


def test_an_application_gets_its_losses_beside_its_packs(tmp_path: Path) -> None:
    broker = Seen(
        tmp_path,
        application_client_identifiers="app",
        application_pack_messages_maximum=2,
        application_pack_timeout_s=1,
        application_strategy="SKIP_ALL",
    )
    broker.start()
    at_rest(broker, "app", "reads/#")
    publish(broker, "reads/a", numbered(2))
    with Wire(broker.port, 4) as wire:
        wire.connect("app")
        assert [wire.receive("publish")["payload"] for _ in range(2)] == numbered(2)
        row = row_of(broker, "app")
        assert (row["reason"], row["count"]) == ("skipped", 2)
        wire.ping()
        assert redrive(broker, row["number"])[1]["messages"] == 2
        assert payloads(received(wire, 2)) == numbered(2)
        publish(broker, "reads/a", [b"new"])
        assert payloads(received(wire, 1)) == [b"new"]
        eventually(lambda: not in_progress(broker), "the end of the re-drive")
    assert broker.stop() == 0, broker.log()


def test_a_clear_word_says_why_a_loss_cannot_be_driven_again(broker: Seen) -> None:
    assert redrive(broker, 77)[0] == 404
    assert redrive(broker, "x")[0] == 404
    row = lose(broker, "away")
    assert broker.ask("DELETE", "/v1/sessions/away")[0] == 200
    assert redrive(broker, row["number"])[1]["error"] == "session_ended"
    at_rest(broker, "away", "away/reads/#")
    status, answer = redrive(broker, row["number"])
    assert (status, answer["error"]) == (409, "session_ended")
    row = lose(broker, "deaf")
    with Wire(broker.port) as wire:
        wire.connect("deaf")
        wire.send("unsubscribe", packet_identifier=2, topic_filters=["deaf/reads/#"])
        wire.receive("unsuback")
        assert redrive(broker, row["number"])[1]["error"] == "not_subscribed"
        assert wire.subscribe("deaf/reads/#", 1, identifier=3) == [1]
        assert redrive(broker, row["number"])[1]["messages"] == LOST
        assert payloads(received(wire, LOST)) == numbered(LOST)


def test_the_command_line_drives_a_loss_again(broker: Seen) -> None:
    lose(broker, "away")

    def holdfast(*words: str) -> str:
        command = [*broker.program, "losses", *words, "--data-dir", str(broker.data_directory)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    (row,) = [json.loads(line) for line in holdfast("--json", "--client", "away").splitlines()]
    assert row["ranges"] == [{"first_offset": row["first_offset"], "end_offset": row["end_offset"]}]
    said = holdfast("redrive", str(row["number"]))
    assert said == f"{LOST} messages go to away again\n"
    assert holdfast("--reason", "overflow").count("away") == 1
    assert holdfast("--since", "10m").count("away") == 1
    assert holdfast("--until", "2026-01-31T12:00").count("away") == 0
    with Wire(broker.port) as wire:
        wire.connect("away")
        assert payloads(received(wire, LOST)) == numbered(LOST)
