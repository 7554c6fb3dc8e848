"""Control records: the log is the truth, the view can be deleted, behind, or ahead of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.broker.store.control_records import (
    BEHIND_RECORDS_MAXIMUM,
    EFFORT_UNBOUNDED,
    HANDED_RECORDS_MAXIMUM,
    ControlRecords,
)
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.broker.world import WorkerThreads

T = TypeVar("T")


class FakeLog:
    """A log of control records alone: a list, and how much of it is durable."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        self.durable = 0
        self.whole_from = 1
        """What lies before has gone."""

    def append_control(self, table: int, key: bytes, value: bytes, _now_us: int) -> int:
        self.records.append((table, key, value))
        return len(self.records)

    def next_control_number(self) -> int:
        return len(self.records) + 1

    def whole_controls_from(self) -> int:
        return self.whole_from

    def end_position(self) -> int:
        return len(self.records)

    def durable_position(self) -> int:
        return self.durable

    def controls(
        self, from_number: int, limit: int, effort: int
    ) -> tuple[list[tuple[int, int, bytes, bytes]], int, bool]:
        found, reached = [], from_number - 1
        looks = LOOKS_AT_ONCE if effort < EFFORT_UNBOUNDED else len(self.records)
        for number, record in enumerate(self.records[: self.durable], start=1):
            if number < max(from_number, self.whole_from):
                continue
            if not looks or len(found) >= limit:
                return found, reached, False
            looks, reached = looks - 1, number
            if record[0] != 0:
                found.append((number, *record))
        return found, reached, True


LOOKS_AT_ONCE = 1_000
KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.sampled_from([b"", b'{"party": 1}', b'{"party": 2}', b'{"party": 3}'])


class ViewMachine(RuleBasedStateMachine):
    """Whatever is lost in a crash, a look-up gives what the log would."""

    def __init__(self) -> None:
        super().__init__()
        self.log = FakeLog()
        self.view = View(":memory:")
        self.records = ControlRecords(self.log, self.view)
        self.records.recover(self.log.next_control_number())

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.records.put(Table.SUBSCRIPTIONS, key, value, 0)

    @rule(key=KEYS)
    def retain(self, key: bytes) -> None:
        """Retention writes what is in force anew, out of a segment that goes."""
        own = [record for record in self.log.records if record[1] == key]
        if own:
            self.log.records.append(own[-1])

    @rule()
    def progress(self) -> None:
        self.records.put_delivery_state(b"\1\0\0\0", b"state", 0)

    @rule()
    def commit(self) -> None:
        self.log.durable = len(self.log.records)

    @rule()
    def refresh(self) -> None:
        self.records.refresh()

    @rule()
    def advance(self) -> None:
        self.records.advance()

    @rule(lost=st.integers(0, 3), deleted=st.booleans())
    def crash(self, lost: int, deleted: bool) -> None:
        # A disk that lies loses durable records too; the view must not know better.
        del self.log.records[max(0, self.log.durable - lost) :]
        self.log.durable = len(self.log.records)
        if deleted:
            self.view.clear()
        self.records = ControlRecords(self.log, self.view)
        self.records.recover(self.log.next_control_number())

    @invariant()
    def look_ups_give_the_newest_value(self) -> None:
        for key in (b"a", b"b", b"c"):
            written = [
                value
                for table, known, value in self.log.records
                if (table, known) == (Table.SUBSCRIPTIONS, key)
            ]
            assert self.records.get(Table.SUBSCRIPTIONS, key) == (written[-1] if written else b"")


TestView = ViewMachine.TestCase
TestView.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def view() -> View:
    return View(":memory:")


def session(party: int, **fields: object) -> bytes:
    import json

    ordinary = {"party": party, "connected": False, "expires_at_us": None, "will_due_at_us": None}
    return json.dumps(ordinary | fields).encode()


def test_sessions_are_found_by_what_is_due(view: View) -> None:
    view.apply(
        [
            (1, Table.SESSIONS, b"late", session(1, expires_at_us=20)),
            (2, Table.SESSIONS, b"early", session(2, expires_at_us=10)),
            (3, Table.SESSIONS, b"will", session(3, will_due_at_us=15)),
            (4, Table.SESSIONS, b"here", session(4, connected=True)),
        ]
    )
    early, late = session(2, expires_at_us=10), session(1, expires_at_us=20)
    assert view.expired(20, 0, b"", 10) == [(b"early", 10, early), (b"late", 20, late)]
    assert view.expired(20, 0, b"", 1) == [(b"early", 10, early)]
    assert view.expired(20, 10, b"early", 10) == [(b"late", 20, late)]
    assert view.expired(9, 0, b"", 10) == []
    will = session(3, will_due_at_us=15)
    assert view.wills_to_come(14, b"", 10) == [(b"will", 15, will)]
    assert view.wills_to_come(15, b"will", 10) == []
    assert view.wills_due(15, 10) == [session(3, will_due_at_us=15)]
    assert view.connected(b"", 10) == [b"here"]
    assert view.connected(b"here", 10) == []
    assert view.client_of(3) == "will"
    assert view.client_of(9) == ""
    assert view.session_count() == 4


def test_a_view_of_another_schema_is_made_again(tmp_path: Path) -> None:
    path = str(tmp_path / "view.sqlite")
    before = View(path)
    before.apply([(1, Table.SUBSCRIPTIONS, b"a", b"[]")])
    before._database.execute("PRAGMA user_version = 99")
    before.close()
    again = View(path)
    assert again.applied() == 0
    assert again.get(Table.SUBSCRIPTIONS, b"a") == b""


def test_a_view_of_this_schema_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "view.sqlite")
    before = View(path)
    before.apply([(7, Table.SUBSCRIPTIONS, b"a", b"[]")])
    before.close()
    again = View(path)
    assert again.applied() == 7
    assert again.get(Table.SUBSCRIPTIONS, b"a") == b"[]"


def test_a_copy_that_retention_made_does_not_hide_what_was_put_after_it() -> None:
    log = FakeLog()
    records = ControlRecords(log, View(":memory:"))
    records.recover(log.next_control_number())
    records.put(Table.SUBSCRIPTIONS, b"a", b"old", 0)
    log.records.append(log.records[-1])
    log.durable = len(log.records)
    records.put(Table.SUBSCRIPTIONS, b"a", b"new", 0)
    records.refresh()
    assert records.get(Table.SUBSCRIPTIONS, b"a") == b"new"


class SlowWorker:
    """Does what it is given when a test says so."""

    def __init__(self) -> None:
        self.given: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        assert not self.given, "there is one worker, and it is at work"
        self.given.append(lambda: done(work()))

    def stop(self) -> None:
        pass

    def work(self) -> None:
        self.given.pop()()


class Serving:
    """Control records of a broker that serves."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.view = View(":memory:")
        self.records = ControlRecords(self.log, self.view)
        self.records.recover(self.log.next_control_number())
        self.worker = SlowWorker()
        self.commits = self.turns = 0
        self.records.keep_up(self.worker, self.commit_soon, self.soon)

    def commit_soon(self) -> None:
        self.commits += 1

    def soon(self) -> None:
        self.turns += 1

    def put(self, first: int, end: int) -> None:
        for number in range(first, end):
            value = b'{"party": %d}' % number
            self.records.put(Table.SESSIONS, b"%06d" % number, value, 0)

    def commit(self) -> None:
        self.log.durable = len(self.log.records)


def test_a_worker_writes_the_view_and_answers_are_right_meanwhile() -> None:
    serving, end = Serving(), 5 * HANDED_RECORDS_MAXIMUM
    serving.put(0, end)
    serving.commit()
    known = [serving.records.refresh().session_count()]
    while serving.worker.given:
        assert all(serving.records.get(Table.SESSIONS, b"%06d" % n) for n in range(0, end, 7))
        serving.worker.work()
        known.append(serving.view.session_count())
    # Nobody who looks at the view waits for it, and no hand-over is larger than it may be.
    assert known == list(range(0, end + 1, HANDED_RECORDS_MAXIMUM))
    assert not list(serving.records.ahead(Table.SESSIONS))


def test_what_was_put_while_the_worker_wrote_is_found() -> None:
    serving = Serving()
    serving.put(0, 1)
    serving.commit()
    serving.records.refresh()
    serving.records.put(Table.SESSIONS, b"000000", b'{"party": 99}', 0)
    serving.worker.work()
    assert serving.view.get(Table.SESSIONS, b"000000") == b'{"party": 0}'
    assert serving.records.get(Table.SESSIONS, b"000000") == b'{"party": 99}'


def test_while_the_view_is_behind_the_log_is_asked_to_commit() -> None:
    serving = Serving()
    serving.put(0, HANDED_RECORDS_MAXIMUM - 1)
    assert serving.commits == 0
    serving.put(HANDED_RECORDS_MAXIMUM, HANDED_RECORDS_MAXIMUM + 1)
    assert serving.commits == 1


def test_whoever_writes_many_records_is_told_when_the_view_is_far_behind() -> None:
    serving = Serving()
    serving.put(0, 2 * HANDED_RECORDS_MAXIMUM)
    assert not serving.records.is_near()
    serving.put(2 * HANDED_RECORDS_MAXIMUM, BEHIND_RECORDS_MAXIMUM)
    assert not serving.records.has_room()
    serving.commit()
    serving.records.advance()
    serving.worker.work()
    assert serving.turns == 1
    assert serving.records.has_room()


def test_one_can_wait_until_the_view_has_what_is_durable() -> None:
    async def run() -> None:
        serving = Serving()
        serving.put(0, 3)
        serving.commit()
        serving.records.refresh()
        serving.put(3, 5)
        serving.commit()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(serving.records.caught_up())
            await asyncio.sleep(0)
            serving.worker.work()
            await asyncio.sleep(0)
            assert not waiting.done()
            serving.worker.work()
        assert serving.view.session_count() == 5

    asyncio.run(run())


def test_one_can_wait_for_what_was_put_so_far_and_not_for_what_comes_after_it() -> None:
    serving = Serving()
    serving.put(0, HANDED_RECORDS_MAXIMUM + 1)
    number = serving.records.last_ahead(Table.SESSIONS)
    serving.put(HANDED_RECORDS_MAXIMUM + 1, 5 * HANDED_RECORDS_MAXIMUM)
    serving.commit()
    written = 0
    while not serving.records.has_all_up_to(number):
        serving.worker.work()
        written += 1
    assert written == 2
    assert number <= serving.view.applied() < serving.records.last_ahead(Table.SESSIONS)
    assert serving.records.last_ahead(Table.QUEUES) == 0
    assert not serving.records.has_all_before(serving.log.durable_position())


def test_a_view_that_is_held_stands_before_a_record_until_it_may_go_on() -> None:
    async def run() -> None:
        serving = Serving()
        serving.put(0, 3)
        serving.records.hold_before(serving.log.next_control_number())
        serving.put(3, 5)
        serving.commit()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(serving.records.comes_to(4))
            await asyncio.sleep(0)
            assert not waiting.done()
            serving.worker.work()
        serving.records.refresh()
        assert serving.view.session_count() == 3
        assert not serving.worker.given
        serving.records.go_on()
        serving.worker.work()
        assert serving.view.session_count() == 5

    asyncio.run(run())


def test_a_stop_leaves_a_view_that_has_everything(tmp_path: Path) -> None:
    log, path = FakeLog(), str(tmp_path / "view.sqlite")
    records = ControlRecords(log, View(path))
    records.recover(log.next_control_number())
    workers = WorkerThreads(1)

    async def run() -> None:
        records.keep_up(workers, lambda: None, lambda: None)
        for number in range(2_000):
            records.put(Table.SESSIONS, b"%06d" % number, b'{"party": %d}' % number, 0)
        log.durable = len(log.records)
        records.refresh()
        records.close()

    asyncio.run(run())
    again = View(path)
    assert (again.session_count(), again.applied()) == (2_000, 2_000)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_view_that_knows_what_the_log_has_lost_is_made_again(tmp_path: Path, lost: int) -> None:
    log, path = FakeLog(), str(tmp_path / "view.sqlite")
    records = ControlRecords(log, View(path))
    records.recover(log.next_control_number())
    for number in range(3):
        records.put(Table.SUBSCRIPTIONS, b"%d" % number, b"before", 0)
    log.durable = len(log.records)
    records.refresh()
    records.close()
    del log.records[-lost:]
    log.durable = len(log.records)
    records = ControlRecords(log, View(path))
    records.recover(log.next_control_number())
    known = [records.get(Table.SUBSCRIPTIONS, b"%d" % number) for number in range(3)]
    assert known == [b"before"] * (3 - lost) + [b""] * lost
    # What gets the numbers of those that were lost is not passed over.
    for number in range(lost):
        records.put(Table.SUBSCRIPTIONS, b"new %d" % number, b"after", 0)
    log.durable = len(log.records)
    assert records.refresh().count(Table.SUBSCRIPTIONS) == 3
    records.close()


def test_records_that_are_none_of_the_views_are_passed_over_in_pieces() -> None:
    serving = Serving()
    for _ in range(3 * LOOKS_AT_ONCE):
        serving.records.put_delivery_state(b"party", b"state", 0)
    serving.put(0, 1)
    serving.commit()
    position, pieces = serving.log.durable_position(), 1
    while not serving.records.has_all_before(position):
        pieces += 1
        if serving.worker.given:
            serving.worker.work()
    assert pieces > 3
    assert serving.view.session_count() == 1


def test_the_view_knows_what_was_passed_over_and_no_start_reads_it_again() -> None:
    serving = Serving()
    serving.put(0, 1)
    for _ in range(LOOKS_AT_ONCE):
        serving.records.put_delivery_state(b"party", b"state", 0)
    serving.commit()
    while serving.view.applied() < 1 + LOOKS_AT_ONCE:
        serving.records.advance()
        serving.worker.work()
    assert serving.view.session_count() == 1


def test_a_view_that_missed_what_was_removed_is_made_anew() -> None:
    log, view = FakeLog(), View(":memory:")
    records = ControlRecords(log, view)
    records.recover(1)
    records.put(Table.CREDENTIALS, b"gone", b"{}", 0)
    log.durable = 1
    records.catch_up()
    records.put(Table.CREDENTIALS, b"gone", b"", 0)
    records.put(Table.CREDENTIALS, b"left", b"{}", 0)
    log.durable = 3
    # The power fails, and the view has lost its last transaction; the log has lost nothing but what
    # retention let go.
    log.whole_from = 3
    recovered = ControlRecords(log, view)
    recovered.recover(log.next_control_number())
    assert recovered.get(Table.CREDENTIALS, b"gone") == b""
    assert recovered.get(Table.CREDENTIALS, b"left") == b"{}"


def test_a_view_that_has_all_that_went_is_believed() -> None:
    log, view = FakeLog(), View(":memory:")
    records = ControlRecords(log, view)
    records.recover(1)
    records.put(Table.CREDENTIALS, b"old", b"{}", 0)
    log.durable = 1
    records.catch_up()
    log.whole_from = 2
    recovered = ControlRecords(log, view)
    assert recovered.recover(log.next_control_number()) == 0
    assert recovered.get(Table.CREDENTIALS, b"old") == b"{}"
