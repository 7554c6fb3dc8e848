"""The kernel's cursor equals its twin through every operation, and loses nothing.

The machine plays a log, a consumer group and a crash: records are appended with gaps between them,
offered in order, acknowledged in any order and in any way, given back, released, skipped; the
cursor is restored from the progress that was taken.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast import kernel
from tests.property.twins import cursor as model
from tests.property.twins.ranges import positions_of, ranges_of

HOLDERS = st.integers(1, 3)
KEY_SLOTS = st.integers(0, 2)
TIMES = st.integers(0, 20)
ANY_OFFSET = st.integers(0, 80)
NEAR_THE_MARK = st.integers(-1, 9)
RECORDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), KEY_SLOTS), min_size=1, max_size=6
)
CHOICES = st.integers(0, 1_000)


class CursorMachine(RuleBasedStateMachine):
    """One queue, its log and its consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled, self.twin = kernel.Cursor(0), model.Cursor(0)
        self.log: list[tuple[int, int, int]] = []
        self.end = 0
        self.now = 0
        self.finished: set[int] = set()
        self.durable_mark, self.durable_ranges = 0, set[int]()

    def both(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Does the same on both and compares the answers."""
        answer = getattr(self.compiled, operation)(*arguments, **options)
        expected = getattr(self.twin, operation)(*arguments, **options)
        assert answer == expected, (operation, arguments, answer, expected)
        return answer

    def outstanding(self, choice: int) -> int:
        """The offset of some entry that is outstanding, or of nothing."""
        offsets = list(self.twin.outstanding) or [choice]
        return offsets[choice % len(offsets)]

    def next_entry(self) -> tuple[int, int, int] | None:
        """The first record in the log that the cursor wants."""
        return next((entry for entry in self.log if self.both("wants", entry[0])), None)

    @rule(records=RECORDS)
    def append(self, records: list[tuple[int, int, int]]) -> None:
        for gap, count, key_slot in records:
            self.log.append((self.end + gap, count, key_slot))
            self.end += gap + count

    @rule(holder=HOLDERS, limit=st.integers(1, 4))
    def deliver(self, holder: int, limit: int) -> None:
        for _ in range(limit):
            if entry := self.next_entry():
                offset, count, key_slot = entry
                assert self.both("deliver", offset, holder, count=count, key_slot=key_slot)

    @rule(not_before=TIMES)
    def delay(self, not_before: int) -> None:
        if entry := self.next_entry():
            offset, count, key_slot = entry
            assert self.both("delay", offset, not_before, count=count, key_slot=key_slot)

    @rule()
    def pass_what_does_not_match(self) -> None:
        entry = self.next_entry()
        self.both("pass_to", entry[0] if entry else self.end)

    @rule(offset=ANY_OFFSET, holder=HOLDERS)
    def offer_what_was_read_before(self, offset: int, holder: int) -> None:
        if offset < self.twin.read():
            assert not self.both("deliver", offset, holder)
            assert not self.both("delay", offset, 5)

    @rule(choice=CHOICES)
    def acknowledge(self, choice: int) -> None:
        offset = self.outstanding(choice)
        if self.both("acknowledge", offset):
            self.finished.add(offset)
        assert self.both("acknowledge", offset) is None

    @rule(offset=ANY_OFFSET)
    def acknowledge_anything(self, offset: int) -> None:
        if self.both("acknowledge", offset):
            self.finished.add(offset)

    @rule(choice=CHOICES, number=ANY_OFFSET)
    def acknowledge_numbered(self, choice: int, number: int) -> None:
        for asked in (self.outstanding(choice), number):
            if self.both("acknowledge_numbered", asked):
                self.finished.add(asked)

    @rule(choice=CHOICES)
    def acknowledge_ahead(self, choice: int) -> None:
        ahead = [entry for entry in self.log if entry[0] >= self.twin.read()]
        if ahead:
            offset, count, _ = ahead[choice % len(ahead)]
            self.both("acknowledge_ahead", offset, count=count)
            self.finished.add(offset)

    @rule(choice=CHOICES, batch_index=st.integers(0, 5))
    def acknowledge_message(self, choice: int, batch_index: int) -> None:
        offset = self.outstanding(choice)
        if self.both("acknowledge_message", offset, batch_index):
            self.finished.add(offset)

    @rule()
    def acknowledge_all(self) -> None:
        for offset in list(self.twin.outstanding):
            self.both("acknowledge", offset)
        self.finished |= {offset for offset, _, _ in self.log if offset < self.twin.read()}

    @rule(choice=CHOICES, not_before=TIMES)
    def give_back(self, choice: int, not_before: int) -> None:
        self.both("give_back", self.outstanding(choice), not_before)

    @rule(holder=HOLDERS)
    def release(self, holder: int) -> None:
        self.both("release", holder)

    @rule(passed=st.integers(0, 5), holder=HOLDERS, on_hold=st.lists(KEY_SLOTS, max_size=2))
    def redeliver(self, passed: int, holder: int, on_hold: list[int]) -> None:
        self.now += passed
        offset = self.both("next_redelivery", self.now, on_hold)
        if offset is not None:
            assert self.both("redeliver", offset, holder) >= 1

    @rule(choice=CHOICES, holder=HOLDERS)
    def redeliver_anything(self, choice: int, holder: int) -> None:
        self.both("redeliver", self.outstanding(choice), holder)

    @rule(near=NEAR_THE_MARK)
    def skip(self, near: int) -> None:
        to = max(0, self.twin.mark() + near)
        # Limits are whole records; only within an entry that was offered is any offset good.
        inside = (offset for offset, count, _ in self.log if offset < to < offset + count)
        to = next((offset for offset in inside if offset >= self.twin.read()), to)
        offered, messages, unread = self.compiled.skip(to)
        assert (offered.ranges(), messages, unread.ranges()) == self.twin.skip(to)
        self.finished |= {offset for offset, _, _ in self.log if offset < to}
        self.end = max(self.end, to)

    @rule()
    def take_progress(self) -> None:
        progress = self.both("take_progress")
        if progress is not None:
            mark, ranges = progress
            self.durable_mark = mark
            self.durable_ranges |= positions_of(ranges)
            self.durable_ranges = {offset for offset in self.durable_ranges if offset > mark}
            assert mark == self.twin.mark()
            assert ranges_of(self.durable_ranges) == self.twin.acknowledged()
        assert self.both("take_progress") is None

    @precondition(lambda self: self.log)
    @rule()
    def crash(self) -> None:
        ranges = ranges_of(self.durable_ranges)
        self.compiled = kernel.Cursor(self.durable_mark, ranges)
        self.twin = model.Cursor(self.durable_mark, ranges)
        self.finished = {
            offset
            for offset, _, _ in self.log
            if offset < self.twin.read() or offset in self.durable_ranges
        }

    @invariant()
    def equals_its_twin(self) -> None:
        for question in (
            "mark",
            "read",
            "acknowledged",
            "next_due",
            "in_flight_count",
            "redelivery_count",
            "deliveries",
        ):
            self.both(question)
        for offset in range(max(0, self.twin.mark() - 2), self.twin.read() + 2):
            self.both("wants", offset)

    @invariant()
    def loses_nothing(self) -> None:
        covered = self.twin.covered
        for offset, count, _ in self.log:
            done = offset + count <= self.twin.mark() or offset in covered
            assert done == (offset in self.finished), (offset, count)
            if offset < self.twin.read():
                assert done != (offset in self.twin.outstanding), (offset, count)

    @invariant()
    def has_no_gaps_while_nothing_is_out_of_order(self) -> None:
        if not self.twin.outstanding:
            assert self.twin.mark() == self.twin.read()


TestCursor = CursorMachine.TestCase
TestCursor.settings = settings(stateful_step_count=80)


def test_acknowledgements_in_order_leave_no_ranges() -> None:
    cursor = kernel.Cursor(10)
    for offset in range(20, 200, 7):
        assert cursor.deliver(offset, 1)
    for offset in range(20, 200, 7):
        assert cursor.acknowledge(offset) == (1, 1, 1)
        assert cursor.acknowledged() == []
        assert cursor.mark() == offset + 1
    cursor.pass_to(500)
    assert cursor.mark() == 500


def test_what_lies_between_matching_records_leaves_no_gap() -> None:
    cursor = kernel.Cursor(0)
    for offset in (5, 10, 15, 20):
        cursor.deliver(offset, 1)
    cursor.acknowledge(15)
    cursor.acknowledge(10)
    assert cursor.acknowledged() == [(6, 16)]
    cursor.acknowledge(5)
    assert (cursor.mark(), cursor.acknowledged()) == (16, [])


def test_progress_that_is_never_taken_does_not_pile_up() -> None:
    cursor = kernel.Cursor(0)
    for pair in range(0, 20_000, 2):
        cursor.deliver(pair, 1)
        cursor.deliver(pair + 1, 2)
        cursor.acknowledge(pair + 1)
        cursor.acknowledge(pair)
    assert cursor.take_progress() == (20_000, [])
