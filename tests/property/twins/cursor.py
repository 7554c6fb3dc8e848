"""The twin of the kernel's `Cursor`: every offset is looked at on its own.

Owns: the set of offsets that are covered, and a dict of what is outstanding. Never: fast.

Invariants:
1. The mark is the first offset that is not covered, or the place of reading if nothing is
   outstanding.
2. An acknowledgement covers from the end of the entry offered before it to its own end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.property.twins.ranges import positions_of, ranges_of


@dataclass
class Outstanding:
    """An entry that was offered and is not done; `holder` is None while it waits."""

    offset: int
    end: int
    key_slot: int
    covers_from: int
    holder: int | None
    last_holder: int
    attempts: int
    not_before: int = 0
    due: bool = True
    messages: set[int] = field(default_factory=set)
    """Offsets of its messages that are not acknowledged."""

    def __post_init__(self) -> None:
        self.messages = set(range(self.offset, self.end))


class Cursor:
    """The position of one queue."""

    def __init__(self, mark: int, acknowledged: Iterable[tuple[int, int]] = ()) -> None:
        self.at_mark = self.at_read = self.tail = mark
        self.covered = positions_of(acknowledged)
        self.outstanding: dict[int, Outstanding] = {}
        self.fresh: set[int] = set()
        self.progressed = False
        self.align()

    def align(self) -> None:
        """Moves the mark to where it belongs."""
        if not self.outstanding:
            self.at_mark = self.at_read
        while self.at_mark in self.covered:
            self.at_mark += 1
        self.covered = {offset for offset in self.covered if offset > self.at_mark}
        self.at_read = max(self.at_read, self.at_mark)

    def cover(self, start: int, end: int) -> None:
        """These offsets are done."""
        self.covered |= set(range(start, end))
        self.fresh |= set(range(start, end))
        self.progressed = True

    def mark(self) -> int:
        """Everything below is done."""
        return self.at_mark

    def read(self) -> int:
        """Everything below has been offered or passed."""
        return self.at_read

    def acknowledged(self) -> list[tuple[int, int]]:
        """What is covered above the mark."""
        return ranges_of(self.covered)

    def wants(self, offset: int) -> bool:
        """True if the entry is new and was not acknowledged before."""
        return offset >= self.at_read and offset not in self.covered

    def pass_to(self, to: int) -> None:
        """Nothing matches below `to`."""
        self.at_read = max(self.at_read, to)
        self.align()

    def offer(self, offset: int, count: int, key_slot: int) -> Outstanding | None:
        """Appends a wanted entry."""
        if not self.wants(offset):
            return None
        covers_from = max(self.tail, self.at_mark)
        entry = Outstanding(offset, offset + count, key_slot, covers_from, None, 0, 0)
        self.outstanding[offset] = entry
        self.tail = self.at_read = entry.end
        return entry

    def deliver(self, offset: int, holder: int, *, count: int = 1, key_slot: int = 0) -> bool:
        """A new entry goes to a holder."""
        entry = self.offer(offset, count, key_slot)
        if entry:
            entry.holder, entry.last_holder, entry.attempts = holder, holder, 1
        return entry is not None

    def delay(self, offset: int, not_before: int, *, count: int = 1, key_slot: int = 0) -> bool:
        """A new entry waits."""
        entry = self.offer(offset, count, key_slot)
        if entry:
            entry.not_before, entry.due = not_before, not_before == 0
        return entry is not None

    def acknowledge(self, offset: int) -> tuple[int, int, int] | None:
        """A whole entry is done."""
        entry = self.outstanding.pop(offset, None)
        if entry is None:
            return None
        self.cover(entry.covers_from, entry.end)
        self.align()
        return entry.last_holder, entry.attempts, len(entry.messages)

    def acknowledge_numbered(self, number: int) -> tuple[int, int, int] | None:
        """The same for the entry with this number: here that is its offset."""
        return self.acknowledge(number)

    def acknowledge_ahead(self, offset: int, *, count: int = 1) -> None:
        """An entry that is still to be read is done."""
        if self.wants(offset):
            self.cover(offset, offset + count)
            self.align()

    def acknowledge_message(self, offset: int, batch_index: int) -> bool:
        """One message of an entry is done."""
        entry = self.outstanding.get(offset)
        if entry is None:
            return False
        entry.messages.discard(offset + batch_index)
        return not entry.messages and self.acknowledge(offset) is not None

    def give_back(self, offset: int, not_before: int) -> bool:
        """A holder does not want it now."""
        entry = self.outstanding.get(offset)
        if entry is None or entry.holder is None:
            return False
        entry.holder, entry.not_before, entry.due = None, not_before, not_before == 0
        return True

    def release(self, holder: int) -> int:
        """A holder has left."""
        held = [entry for entry in self.outstanding.values() if entry.holder == holder]
        return sum(self.give_back(entry.offset, 0) for entry in held)

    def next_redelivery(self, now: int, key_slots_on_hold: Iterable[int]) -> int | None:
        """The lowest that waits, is due and is not on hold."""
        waiting = [entry for entry in self.outstanding.values() if entry.holder is None]
        for entry in waiting:
            entry.due = entry.due or entry.not_before <= now
        on_hold = set(key_slots_on_hold)
        return min(
            (entry.offset for entry in waiting if entry.due and entry.key_slot not in on_hold),
            default=None,
        )

    def redeliver(self, offset: int, holder: int) -> int | None:
        """What waits and is due goes to a holder."""
        entry = self.outstanding.get(offset)
        if entry is None or entry.holder is not None or not entry.due:
            return None
        entry.holder = entry.last_holder = holder
        entry.attempts += 1
        return entry.attempts

    def next_due(self) -> int | None:
        """When the first that is not due will be."""
        return min(
            (entry.not_before for entry in self.outstanding.values() if not entry.due), default=None
        )

    def in_flight_count(self) -> int:
        """How many are held."""
        return sum(entry.holder is not None for entry in self.outstanding.values())

    def redelivery_count(self) -> int:
        """How many wait."""
        return len(self.outstanding) - self.in_flight_count()

    def take_progress(self) -> tuple[int, list[tuple[int, int]]] | None:
        """What was covered since the last call."""
        fresh, self.fresh = self.fresh, set()
        progressed, self.progressed = self.progressed, False
        return (self.at_mark, ranges_of(fresh & self.covered)) if progressed else None

    def deliveries(self) -> list[tuple[int, int, int, int]]:
        """What is held, in order."""
        held = [entry for entry in self.outstanding.values() if entry.holder is not None]
        return [
            (entry.offset, entry.last_holder, entry.attempts, len(entry.messages)) for entry in held
        ]

    def skip(self, to: int) -> tuple[list[tuple[int, int]], int, list[tuple[int, int]]]:
        """Everything below `to` is given up."""
        if to <= self.at_mark:
            return [], 0, []
        gone = [entry for entry in self.outstanding.values() if entry.offset < to]
        for entry in gone:
            del self.outstanding[entry.offset]
        messages = {message for entry in gone for message in entry.messages}
        unread = set(range(self.at_read, to)) - self.covered
        end = max([to, *(entry.end for entry in gone)])
        self.at_read = max(self.at_read, end)
        self.cover(self.at_mark, end)
        self.align()
        return ranges_of(messages), len(messages), ranges_of(unread)
