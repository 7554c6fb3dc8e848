"""What a queue at rest keeps, and what the loss ledger says of the rest."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.layout import VIEW_FILE
from tests.interop.device import Device, payloads
from tests.interop.wire import Wire
from tests.process import BrokerProcess

LIMIT = 100
SENT = 150


@pytest.fixture(params=["newest", "oldest"])
def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker whose queues at rest keep few messages, and which ones."""
    keep = str(request.param)
    broker = BrokerProcess(tmp_path, queue_messages_maximum=LIMIT, queue_keep=keep)
    broker.start()
    yield broker, keep
    if broker.is_running():
        assert broker.stop() == 0, broker.log()


def test_a_queue_at_rest_keeps_its_limit_and_the_ledger_names_the_rest(
    keeping: tuple[BrokerProcess, str],
) -> None:
    broker, keep = keeping
    away = Device(broker.port, "away", version=4, clean_start=False).connect()
    away.subscribe("reads/#", 1)
    away.disconnect()
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    sent = [b"%d" % number for number in range(SENT)]
    publisher.publish_all("reads/a", sent, 1)
    publisher.close()
    back = Device(broker.port, "away", version=4, clean_start=False).connect()
    kept = sent[-LIMIT:] if keep == "newest" else sent[:LIMIT]
    assert payloads(back.receive_many(LIMIT)) == kept
    assert back.all_received() == []
    back.close()
    assert broker.stop() == 0, broker.log()

    with closing(sqlite3.connect(broker.data_directory / VIEW_FILE)) as view:
        losses = [json.loads(value) for (value,) in view.execute("SELECT value FROM losses")]
    first = 0 if keep == "newest" else LIMIT
    assert [
        (loss["client_identifier"], loss["reason"], loss["first_offset"], loss["count"])
        for loss in losses
    ] == [("away", "overflow", first, SENT - LIMIT)]


def test_what_was_acknowledged_out_of_order_does_not_count(
    keeping: tuple[BrokerProcess, str],
) -> None:
    broker, keep = keeping
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    early = [b"early %d" % number for number in range(80)]
    late = [b"late %d" % number for number in range(60)]
    last = [b"last %d" % number for number in range(60)]
    with Wire(broker.port) as wire:
        wire.connect("away")
        wire.subscribe("reads/#", 1)
        publisher.publish_all("reads/a", early)
        packets = [wire.receive("publish") for _ in early]
        for packet in packets[1:]:
            wire.acknowledge("puback", packet["packet_identifier"])
        wire.ping()
    # One of 80 is left: with 60 more there is room for all, although 140 lie above the mark.
    publisher.publish_all("reads/a", late)
    with Wire(broker.port) as wire:
        assert wire.connect("away")["session_present"]
        got = [wire.receive("publish")["payload"] for _ in range(61)]
        assert got == [early[0], *late]
    publisher.publish_all("reads/a", last)
    with Wire(broker.port) as wire:
        wire.connect("away")
        got = [wire.receive("publish")["payload"] for _ in range(LIMIT)]
        # What was in flight comes again in any case [MQTT-4.4.0-1].
        in_flight, room = [early[0], *late], LIMIT - 61
        assert got == in_flight + (last[-room:] if keep == "newest" else last[:room])
        wire.ping()
    publisher.close()
