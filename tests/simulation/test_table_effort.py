"""Tables of one moment cost no step of the loop more than its share, however many rows they have;
counted, not timed."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.chores import PIECE_EFFORT
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.mqtt.session_records import format_session
from holdfast.broker.observe.tables import MomentTaken, Tables
from holdfast.broker.server import Server
from holdfast.broker.state.broker import look_at
from holdfast.broker.store.tables import Table, party_key
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription
from holdfast.core.table_names import TABLES
from holdfast.reading.tables import SCHEMAS, rows_of
from tests.builders.still import NOW_US, FiledWorld, StillWorld
from tests.equipment.checkers import check_steps_of_the_loop_are_short
from tests.equipment.history import History
from tests.simulation.effort import Effort

SESSIONS = 20_000
RECEIVERS = 200
IN_FLIGHT = 1_000
"""To each receiver: 200 000 deliveries in all."""
EFFORT_MAXIMUM = 2 * PIECE_EFFORT
MEMORY_BYTES_MAXIMUM = 96 << 20
"""What taking all of it may add to the process: most of it is what Arrow and SQLite begin with."""
NAMES = tuple(name for name in TABLES if name != "messages")


def _reads() -> Subscription:
    return Subscription(
        topic_filter="fleet/#",
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )


def _state(mark: int) -> bytes:
    """A delivery state with IN_FLIGHT messages of QoS 1 in flight."""
    flights = b"".join(
        _varint(number) + _varint(mark + number) + _varint(1) for number in range(1, IN_FLIGHT + 1)
    )
    parts = (b"\0", _varint(mark), _varint(0), _varint(IN_FLIGHT), flights)
    return b"".join((*parts, _varint(0), _varint(0), _varint(IN_FLIGHT), _varint(0)))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _fill(server: Server) -> None:
    """Many sessions at rest, and some connected with much in flight."""
    kernel, records = server.stages.kernel, server.records
    for number in range(SESSIONS):
        key = b"session-%05d" % number
        session = Session(
            client_identifier=key.decode(),
            party=number + 1,
            protocol_version=5,
            created_at_offset=0,
            expiry_s=None,
            connected=number < RECEIVERS,
        )
        records.put(Table.SESSIONS, key, format_session(session), NOW_US)
        server.stages.queues.put(own_queue(session, (_reads(),)), NOW_US)
        if number < 2 * RECEIVERS:
            records.put_delivery_state(party_key(number + 1), _state(number), NOW_US)
        if number < RECEIVERS:
            kernel.deliveries.attach(
                number,
                party=number + 1,
                state=_state(number),
                subscriptions=[],
                receive_maximum=IN_FLIGHT,
                mark=number,
                end_offset=0,
                entries_maximum=0,
                pack_maximum=0,
                sent_before=0,
            )
    records.put(Table.COUNTERS, b"party", str(SESSIONS + 1_024).encode(), NOW_US)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def _taken(world: StillWorld, tables: Tables) -> MomentTaken:
    """All tables, while the disk keeps up."""
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(tables.take(NAMES))
        while not taking.done():
            world.commits_made.commit()
            await asyncio.sleep(0)
    return taking.result()


def _rows(tables: Tables, moment: str, name: str) -> pa.Table:
    path = tables.file(moment, name)
    assert path is not None
    return pa.Table.from_batches(rows_of(path), SCHEMAS[name])


def test_tables_of_a_crowd_take_many_short_steps(tmp_path: Path) -> None:
    history, told = History(), dict[str, Any]()

    async def run() -> None:
        world = FiledWorld()
        server = assemble(Config(data_dir=tmp_path, retention_bytes=2**30), world)
        _fill(server)
        tables = Tables(look_at(server, world.view_path(server.config)))
        # What is loaded at first is not counted.
        await _taken(world, tables)
        Effort(server, history.add, EFFORT_MAXIMUM)
        before = _resident_bytes()
        moment = await _taken(world, tables)
        told["memory"] = _resident_bytes() - before
        for name in NAMES:
            told[name] = _rows(tables, moment.moment, name)

    asyncio.run(run())
    assert history.events, "no step has done any work"
    assert check_steps_of_the_loop_are_short(history) == []
    assert told["memory"] < MEMORY_BYTES_MAXIMUM
    assert told["sessions"].num_rows == told["queues"].num_rows == SESSIONS
    states = told["deliveries"]["state"].to_pylist()
    assert states.count("in flight") == states.count("at rest") == RECEIVERS * IN_FLIGHT
    assert set(told["deliveries"]["holder"].to_pylist()) == {
        f"session-{number:05}" for number in range(2 * RECEIVERS)
    }
    marks = told["acknowledgements"]
    assert marks.num_rows == 2 * RECEIVERS - 1


@pytest.mark.parametrize("effort", [PIECE_EFFORT])
def test_a_copy_at_one_go_would_be_found(effort: int, tmp_path: Path) -> None:
    """The judge that the test above stands on counts what is copied."""
    history = History()

    async def run() -> None:
        server = assemble(Config(data_dir=tmp_path, retention_bytes=2**30), FiledWorld())
        _fill(server)
        judge = Effort(server, history.add, 2 * effort)
        kernel = server.stages.kernel

        def copy() -> None:
            kernel.deliveries.begin_instant()
            rows, is_all = kernel.deliveries.instant_piece(10_000_000)
            kernel.log.note_effort(rows["rows"])
            assert is_all

        judge.measured("a copy", copy)

    asyncio.run(run())
    (found,) = check_steps_of_the_loop_are_short(history)
    assert found.startswith("a copy did")
