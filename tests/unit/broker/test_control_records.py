"""Control records: the log is the truth, the view can be deleted, behind, or ahead of it."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.broker.chores import Chores
from holdfast.broker.store.control_records import (
    BEHIND_RECORDS_MAXIMUM,
    PIECE_RECORDS_MAXIMUM,
    UNSAVED_RECORDS,
    ControlRecords,
)
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from tests.builders.still import InlineWorkers


class FakeLog:
    """A log of control records alone: a list, and how much of it is durable."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        self.durable = 0

    def append_control(self, table: int, key: bytes, value: bytes, _now_us: int) -> int:
        self.records.append((table, key, value))
        return len(self.records)

    def next_control_number(self) -> int:
        return len(self.records) + 1

    def end_position(self) -> int:
        return len(self.records)

    def durable_position(self) -> int:
        return self.durable

    def controls(self, from_number: int, limit: int) -> list[tuple[int, int, bytes, bytes]]:
        numbered = enumerate(self.records[: self.durable], start=1)
        found = [(number, *record) for number, record in numbered if record[0] != 0]
        return [record for record in found if record[0] >= from_number][:limit]


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
    assert view.connected(b"", 10) == [session(4, connected=True)]
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


class Turns:
    """Chores, a turn at a time, and a log that commits when it is asked to."""

    def __init__(self, path: str = ":memory:") -> None:
        self.log = FakeLog()
        self.records = ControlRecords(self.log, View(path))
        self.records.recover(self.log.next_control_number())
        self.chores = Chores(lambda: None)
        self.asked = 0
        self.records.keep_up(self.chores, self.ask, InlineWorkers())

    def ask(self) -> None:
        self.asked += 1

    def put(self, first: int, end: int) -> None:
        for number in range(first, end):
            value = b'{"party": %d}' % number
            self.records.put(Table.SESSIONS, b"%06d" % number, value, 0)


def test_the_view_catches_up_in_pieces_and_answers_are_right_meanwhile() -> None:
    turns = Turns()
    turns.put(0, 5 * PIECE_RECORDS_MAXIMUM)
    view, known = turns.records.refresh(), [0]
    turns.log.durable = len(turns.log.records)
    while turns.chores.is_busy():
        turns.chores.run_piece()
        known.append(view.session_count())
        last = b"%06d" % (5 * PIECE_RECORDS_MAXIMUM - 1)
        assert turns.records.get(Table.SESSIONS, last)
    steps = {after - before for before, after in pairwise(known)}
    assert max(steps) == PIECE_RECORDS_MAXIMUM
    assert known[-1] == 5 * PIECE_RECORDS_MAXIMUM
    assert len(turns.chores) == 0


def test_while_the_view_is_behind_the_log_is_asked_to_commit() -> None:
    turns = Turns()
    turns.put(0, 2 * PIECE_RECORDS_MAXIMUM)
    while turns.chores.is_busy():
        turns.chores.run_piece()
    assert turns.asked == 1
    assert len(turns.chores) == 1


def test_a_look_at_the_view_never_takes_over_more_than_a_piece() -> None:
    turns = Turns()
    turns.put(0, 1)
    # Retention has written what is in force anew, and nothing of that is ahead of the view.
    turns.log.records += [(Table.WILLS, b"%06d" % number, b"{}") for number in range(5_000)]
    turns.log.durable = len(turns.log.records)
    assert turns.records.refresh().count(Table.WILLS) == PIECE_RECORDS_MAXIMUM - 1
    turns.records.advance()
    assert turns.records.refresh().count(Table.WILLS) == PIECE_RECORDS_MAXIMUM - 1
    while turns.chores.is_busy():
        turns.chores.run_piece()
    assert turns.records.refresh().count(Table.WILLS) == 5_000


def test_what_is_ahead_of_the_view_is_bounded_whoever_puts() -> None:
    turns = Turns()
    for first in range(0, 2 * BEHIND_RECORDS_MAXIMUM, 1_000):
        turns.put(first, first + 1_000)
        turns.log.durable = len(turns.log.records)
    assert sum(1 for _ in turns.records.ahead(Table.SESSIONS)) <= BEHIND_RECORDS_MAXIMUM + 1_000


def test_the_views_file_is_brought_up_to_date_beside_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "view.sqlite"
    turns = Turns(str(path))
    before = path.stat().st_size
    turns.put(0, 2 * UNSAVED_RECORDS)
    turns.log.durable = len(turns.log.records)
    while turns.chores.is_busy():
        turns.chores.run_piece()
    assert path.stat().st_size > before
