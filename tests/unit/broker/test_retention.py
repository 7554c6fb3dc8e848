"""What a run of retention asks of the queues at rest, which may be many."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.entrance import Publication
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.mqtt.session_records import format_session
from holdfast.broker.server import Server
from holdfast.broker.store.retention import GOING_TOLD, LOOKED_AT, NOTHING, PAGE
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription
from tests.builders.still import NOW_US, StillWorld, settled

T = TypeVar("T")

DEVICES = 3_000
SEGMENT_BYTES = 65_536
PAYLOAD = bytes(1_000)
ODD = 'caf\u00e9 "of" \\ devices'


def put_queue(
    server: Server, party: int, *topic_filters: str, expires_in_us: int = 86_400_000_000
) -> None:
    """Of a session at rest."""
    key = b"session-%05d" % party
    session = Session(
        client_identifier=key.decode(),
        party=party,
        protocol_version=5,
        created_at_offset=0,
        expiry_s=86_400,
        connected=False,
        expires_at_us=NOW_US + expires_in_us,
    )
    reads = tuple(
        Subscription(
            topic_filter=topic_filter,
            qos=1,
            no_local=False,
            retain_as_published=False,
            identifier=None,
            from_offset=0,
        )
        for topic_filter in topic_filters
    )
    server.records.put(Table.SESSIONS, key, format_session(session), NOW_US)
    server.stages.queues.put(own_queue(session, reads), NOW_US)


class Behind:
    """A view that does not know yet that clients were there again."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def ended(self, parties: Sequence[int], _now_us: int) -> set[int]:
        return set(parties)


class Waits:
    """The control records, and up to which of them a run has the view know."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self.numbers: set[int] = set()

    def refresh(self) -> Behind:
        return Behind(self._records.refresh())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def has_all_up_to(self, number: int) -> bool:
        self.numbers.add(number)
        found: bool = self._records.has_all_up_to(number)
        return found


class Questions:
    """The kernel's log, and which queues are asked about."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.parties: list[int] = []
        self.ended: list[int] = []
        self.pages = 0
        self.controls_from = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def going(self, topics: list[str]) -> list[int]:
        self.pages += 1
        found: list[int] = self._log.going(topics)
        return found

    def whole_controls_from(self) -> int:
        self.controls_from = self._log.whole_controls_from()
        return self.controls_from

    def visit(self, cursors: list[dict[str, Any]]) -> None:
        self.parties += [cursor["party"] for cursor in cursors]
        self.ended += [cursor["party"] for cursor in cursors if cursor["keep_from"] == NOTHING]
        self._log.visit(cursors)


async def _published(server: Server, world: StillWorld, topics: list[str]) -> None:
    for topic in topics:
        server.stages.entrance.publish(Publication(topic, PAYLOAD, 1, False))
        await settled(world)


def _written_to(view: View) -> set[int]:
    """The tables to which it writes from now on."""
    tables, apply = set[int](), view.apply

    def noted(records: list[tuple[int, int, bytes, bytes]]) -> None:
        tables.update(table for _, table, _, _ in records)
        apply(records)

    view.apply = noted  # type: ignore[method-assign, assignment]
    return tables


async def _done(pieces: Pieces[T], world: StillWorld) -> T:
    """What a chore comes to."""
    while True:
        try:
            ready: Callable[[], bool] | None = next(pieces)
        except StopIteration as ended:
            outcome: T = ended.value
            return outcome
        while ready is not None and not ready():
            await settled(world)


def _resumed(pieces: Pieces[T], ready: Callable[[], bool] | None) -> Pieces[T]:
    """A chore that has come as far as to wait for this."""
    yield ready
    return (yield from pieces)


async def run_of(
    directory: Path,
    queues: dict[int, tuple[str, ...]],
    topics: list[str],
    expired: Sequence[int] = (),
) -> Questions:
    """Whom a run asks, with these queues at rest and messages of these topics in what goes."""
    config = Config(data_dir=directory, segment_bytes=SEGMENT_BYTES, retention_bytes=SEGMENT_BYTES)
    world = StillWorld()
    server = assemble(config, world)
    for party, filters in queues.items():
        put_queue(server, party, *filters, expires_in_us=-1 if party in expired else 86_400_000_000)
        if party % 1_000 == 0:
            await settled(world)
    server.records.put(Table.COUNTERS, b"party", str(2 * DEVICES).encode(), NOW_US)
    await settled(world)
    await _published(server, world, topics)
    await _published(server, world, ["filling"] * 200)
    server.records.catch_up()
    retention = server.sweep._retention
    retention._log = questions = Questions(server.stages.kernel.log)
    retention._records = waits = Waits(server.records)  # type: ignore[assignment]
    written = _written_to(server.records.refresh())
    outcome = await _done(retention.run(server.sweep._queues), world)
    assert outcome.segments > 0
    server.records.catch_up()
    assert not written & {Table.SESSIONS, Table.QUEUES}, "what is written anew the view has"
    # It has all queues and all of what goes; what is written anew it need not have.
    assert waits.numbers == {0, questions.controls_from - 1}
    return questions


@pytest.mark.parametrize(
    ("told", "page"), [(GOING_TOLD, LOOKED_AT), (0, PAGE)], ids=["the view knows", "too many"]
)
def test_a_queue_is_not_asked_about_what_has_none_of_its_topics(
    told: int, page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.store.retention.GOING_TOLD", told)
    devices = {party: (f"device/{party}/down",) for party in range(1, DEVICES + 1)}
    some = {
        7: ("device/7/down", "device/7/clock"),
        8: ("device/8/down", "device/8/clock", "8", "also/8", "one/more/8"),
        9: ("device/9/+",),
        10: ("device/10/down", "all/#"),
        11: ("fresh/11", "fresh/11/clock"),
        12: (ODD,),
        13: ("device/7/clock",),
    }
    topics = ["device/5/down", "device/7/clock", ODD]
    questions = asyncio.run(run_of(tmp_path, devices | some, topics))
    assert sorted(questions.parties) == [5, 7, 8, 9, 10, 12, 13]
    assert questions.pages <= DEVICES / page + 1, "a page costs a turn, however busy that is"


def test_whether_a_session_has_expired_is_asked_of_what_was_put_last(tmp_path: Path) -> None:
    queues = dict.fromkeys((1, 2, 3), ("command/+",))
    questions = asyncio.run(run_of(tmp_path, queues, ["command/x"], expired=[2]))
    assert sorted(questions.parties) == [1, 2, 3]
    assert questions.ended == [2], "the view says so of all of them"


@pytest.mark.parametrize(
    ("filters", "topics"),
    [
        (("a",), ["a"]),
        (("a/b", "c", "\u00e9", 'q"u\\o'), ["a/b", "c", "\u00e9", 'q"u\\o']),
        (("a", "b", "c", "d", "e"), None),
        (("a/+",), None),
        (("a", "b/#"), None),
    ],
)
def test_the_view_tells_a_few_topics_and_nothing_where_there_are_wildcards(
    tmp_path: Path, filters: tuple[str, ...], topics: list[str] | None
) -> None:
    async def told() -> list[str] | None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path), world)
        put_queue(server, 3, *filters)
        await settled(world)
        view: View = server.records.catch_up()
        (row,) = view.queues(0, 10, shared=False)
        return row.topics

    assert asyncio.run(told()) == topics


class Gathered:
    """The kernel's log, and how much of a run was not durable, and whether a footer waited,
    whenever it wrote more anew."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.before: list[int] = []
        self.behind: list[int] = []
        self.footers: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def renew_piece(self, effort: int, now_us: int) -> Any:
        self.before.append(self._log.uncommitted_bytes())
        self.footers.append(self._log.awaits_footer())
        is_all = self._log.renew_piece(effort, now_us)
        self.behind.append(self._log.uncommitted_bytes())
        return is_all


def test_no_commit_has_to_write_more_of_a_run_than_may_gather_and_no_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.store.retention.GATHERED_BYTES_MAXIMUM", 10_000)
    monkeypatch.setattr("holdfast.broker.store.retention.PIECE_EFFORT", 200)

    async def gathered() -> Gathered:
        world = StillWorld()
        world.durability = "fsync"
        config = Config(
            data_dir=tmp_path, segment_bytes=SEGMENT_BYTES, retention_bytes=SEGMENT_BYTES
        )
        server = assemble(config, world)
        for party in range(1, 501):
            put_queue(server, party, f"device/{party}/down")
        await settled(world)
        await _published(server, world, ["filling"] * 200)
        server.records.catch_up()
        retention = server.sweep._retention
        retention._log = found = Gathered(server.stages.kernel.log)
        outcome = await _done(retention.run(server.sweep._queues), world)
        assert outcome.segments > 0
        return found

    found = asyncio.run(gathered())
    assert max(found.before) < 10_000 <= max(found.behind)
    assert not any(found.footers[1:])


class Carried:
    """The kernel's log, and whether a checkpoint stood when it was asked for what stays."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.stood: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def carry_job(self, now_us: int) -> Any:
        self.stood.append(self._log.retention_has_checkpoint())
        return self._log.carry_job(now_us)


@pytest.mark.parametrize("is_one_on_its_way", [False, True])
def test_a_nearly_full_disk_has_a_checkpoint_before_what_was_deleted_goes(
    tmp_path: Path, *, is_one_on_its_way: bool
) -> None:
    config = Config(data_dir=tmp_path, segment_bytes=SEGMENT_BYTES, retention_bytes=SEGMENT_BYTES)

    async def run() -> None:
        world = StillWorld()
        server = assemble(config, world)
        await _published(server, world, ["filling"] * 200)
        server.stages.kernel.log.close()
        world = StillWorld()
        server = assemble(replace(config, reserve_bytes=2**60), world)
        others = []
        if is_one_on_its_way:
            # It stands before all that comes now.
            other = server.sweep._checkpoints.write_now(lambda: NOW_US)
            others = [_done(_resumed(other, next(other)), world)]
        # Messages are refused there; what is put on record lies behind the checkpoint of the start.
        for number in range(200):
            server.records.put(Table.COUNTERS, b"filling", b"%01000d" % number, NOW_US)
            await settled(world)
        log = server.stages.kernel.log
        assert log.statistics()["space_is_low"], "so that a run could do without"
        server.records.catch_up()
        retention = server.sweep._retention
        retention._log = carried = Carried(log)
        outcome, *_ = await asyncio.gather(
            _done(retention.run(server.sweep._queues), world), *others
        )
        assert outcome.segments > 0
        assert carried.stood == [True]

    asyncio.run(run())
