"""What tables of one moment say of a message fits together, whatever happens meanwhile."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.broker import moments
from holdfast.broker.assemble import assemble
from holdfast.broker.observe.tables import Tables
from holdfast.broker.server import Server
from holdfast.broker.state.broker import look_at
from holdfast.core.config import Config
from holdfast.kernel import Log, decode_packets, encode_packet
from holdfast.reading.tables import SCHEMAS, rows_of
from tests.builders.still import FiledWorld, Wire, settled

SUBSCRIBERS = 7
NAMES = ("deliveries", "acknowledgements", "sessions", "subscriptions")
ROUNDS = 5
MESSAGES_A_ROUND = 40


class Subscriber:
    """It is sent everything, and acknowledges one message when it is told to."""

    def __init__(self, server: Server, number: int) -> None:
        self.name = f"subscriber-{number}"
        self.wire = Wire(server.stages.connections.make())
        self.send("connect", client_identifier=self.name, clean_start=False, keep_alive_s=0)
        self._unacknowledged: list[int] = []

    def send(self, kind: str, **fields: object) -> None:
        self.wire.send(encode_packet(kind, fields, protocol_version=4))

    def subscribe(self, topic_filter: str) -> None:
        wanted = {"qos": 1, "no_local": False, "retain_as_published": False, "retain_handling": 0}
        subscriptions = [{"topic_filter": topic_filter} | wanted]
        self.send("subscribe", packet_identifier=1, subscriptions=subscriptions)

    def acknowledge(self) -> None:
        """The one before the last: so there are gaps."""
        written = bytes(self.wire.written)
        packets, used = decode_packets(written, protocol_version=4, role="client")
        del self.wire.written[:used]
        self._unacknowledged += [
            packet.fields["packet_identifier"] for packet in packets if packet.kind == "publish"
        ]
        if len(self._unacknowledged) > 1:
            self.send("puback", packet_identifier=self._unacknowledged.pop(-2), reason_code=0)


@pytest.mark.parametrize("pieces_of", [3, 40])
def test_every_message_is_acknowledged_or_in_flight_and_never_both(
    tmp_path: Path, pieces_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PIECE_EFFORT", pieces_of)
    asyncio.run(_take_while_messages_pass(tmp_path))


class LateLog:
    """A log that copies delivery states as of when they are first asked for."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def begin_instant(self) -> None:
        pass

    def states_piece(self, after: int | None, effort: int) -> Any:
        if after is None:
            self._log.begin_instant()
        return self._log.states_piece(after, effort)


def test_two_moments_in_place_of_one_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant(server: Server) -> None:
        server.stages.moments._log = LateLog(server.stages.kernel.log)  # type: ignore[assignment]

    monkeypatch.setattr(moments, "PIECE_EFFORT", 3)
    # Which sign of it is seen first depends on how many turns it takes to write the tables.
    with pytest.raises(AssertionError, match="two moments"):
        asyncio.run(_take_while_messages_pass(tmp_path, plant))


async def _take_while_messages_pass(
    directory: Path, plant: Callable[[Server], None] = lambda _server: None
) -> None:
    world = FiledWorld()
    server = assemble(Config(data_dir=directory), world)
    plant(server)
    tables = Tables(look_at(server, world.view_path(server.config)))
    subscribers = [Subscriber(server, number) for number in range(SUBSCRIBERS)]
    publisher = Subscriber(server, SUBSCRIBERS)
    await settled(world)
    for subscriber in subscribers:
        subscriber.subscribe("reads/#")
    await settled(world)
    published = 0
    for _ in range(ROUNDS):
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(tables.take(NAMES))
            last = published + MESSAGES_A_ROUND
            while not taking.done():
                if published < last:
                    published += 1
                    _pass_one(publisher, subscribers, published)
                await asyncio.sleep(0)
                world.commits_made.commit()
        moment = taking.result()
        found = {name: _rows(tables, moment.moment, name) for name in NAMES}
        for subscriber in subscribers:
            _check(subscriber.name, moment.offset, found)
        await settled(world)


def _pass_one(publisher: Subscriber, subscribers: list[Subscriber], number: int) -> None:
    """One message more, and some acknowledgements."""
    fields = {"topic_name": f"reads/{number % 3}", "payload": b"x", "qos": 1, "dup": False}
    publisher.send("publish", packet_identifier=number, retain=False, **fields)
    for subscriber in subscribers[number % 3 :: 3]:
        subscriber.acknowledge()


def _rows(tables: Tables, moment: str, name: str) -> list[dict[str, object]]:
    path = tables.file(moment, name)
    assert path is not None
    rows: list[dict[str, object]] = pa.Table.from_batches(rows_of(path), SCHEMAS[name]).to_pylist()
    return rows


def _check(name: str, end: int, found: dict[str, list[dict[str, object]]]) -> None:
    in_flight = [row["offset"] for row in found["deliveries"] if row["name"] == name]
    done = [
        offset
        for row in found["acknowledgements"]
        if row["name"] == name
        for offset in range(row["begin"], row["end"])  # type: ignore[call-overload]
    ]
    known = sorted(in_flight + done)  # type: ignore[operator]
    assert known == sorted(set(known)), "two moments: acknowledged, and in somebody's hands"
    # What was stored last was not durable yet, and in nobody's hands.
    assert known == list(range(len(known))), "two moments: neither of them"
    assert len(known) <= end, "two moments: behind the log's end"
