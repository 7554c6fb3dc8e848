"""Control records: the log is the truth, the view can be deleted, behind, or ahead of it."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View


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
    assert view.expired(20, 10) == [
        session(2, expires_at_us=10),
        session(1, expires_at_us=20),
    ]
    assert view.expired(9, 10) == []
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
