"""Control records: written to the log, looked up in the view.

Owns: what has been appended and is not in the view yet. Never: decides what a record means.

Invariants:
1. `get` answers with what was put last, whether or not the view has it yet.
2. The view learns of a record from the log alone: running and recovering are the same code.
3. What waits for the view is bounded: it is brought up to date when there is that much, and what is
   not durable yet is bounded by what may wait for the disk.

Flow: sessions, losses -> log (truth) -> view (look-ups).
"""

import sqlite3
from dataclasses import dataclass

from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.kernel import Log

BATCH_RECORDS_MAXIMUM = 4_096
"""Control records read from the log at once; a transaction of that size takes some milliseconds."""
BEHIND_RECORDS_MAXIMUM = 16_384
"""Records put that the view does not have yet: a bound for memory when sessions come in a storm."""


@dataclass(slots=True)
class _Ahead:
    value: bytes
    number: int
    """The number of its record. What the log has of the key before it may still come: older
    records, and copies that retention has made of them."""


class ControlRecords:
    """The one writer of control records of Python's tables."""

    def __init__(self, log: Log, view: View) -> None:
        self._log = log
        self._view = view
        self._ahead: dict[tuple[int, bytes], _Ahead] = {}
        self._applied = 0
        self._end_before = (0, 0)
        """Log position and last control number when `advance` was last called."""

    def recover(self, next_number: int) -> int:
        """Brings the view in line with a log that was just opened; returns how many records it
        read."""
        try:
            ahead = self._view.applied() >= max(next_number, 1)
        except sqlite3.DatabaseError:
            ahead = True
        if ahead:
            self._view.clear()
        self._applied = self._view.applied()
        return self._catch_up()

    def put(self, table: Table, key: bytes, value: bytes, now_us: int) -> int:
        """Appends a record, an empty `value` removing the key; returns the log position at which it
        is durable. It has survived nothing before that."""
        position = self._log.append_control(table, key, value, now_us)
        self._ahead[table, key] = _Ahead(value, self._log.next_control_number() - 1)
        if len(self._ahead) >= BEHIND_RECORDS_MAXIMUM:
            self.refresh()
        return position

    def put_delivery_state(self, key: bytes, value: bytes, now_us: int) -> int:
        """Appends to the kernel's own table, which has no view."""
        return self._log.append_control(Table.DELIVERY_STATE, key, value, now_us)

    def get(self, table: Table, key: bytes) -> bytes:
        """The newest value of a key; empty if there is none."""
        ahead = self._ahead.get((table, key))
        return self._view.get(table, key) if ahead is None else ahead.value

    def refresh(self) -> View:
        """The view, up to date with what is durable."""
        if self._ahead:
            self._catch_up()
        return self._view

    def advance(self) -> None:
        """Lets the view know how far it has read when there was nothing for it: acknowledgement
        progress takes control numbers too, and need not be read again at the next start."""
        self._catch_up()
        position, number = self._end_before
        if self._log.durable_position() >= position and number > self._applied:
            self._applied = number
            self._view.advance(number)
        self._end_before = self._log.end_position(), self._log.next_control_number() - 1

    def close(self) -> None:
        """Closes the view."""
        self._view.close()

    def _catch_up(self) -> int:
        count = 0
        while records := self._log.controls(self._applied + 1, BATCH_RECORDS_MAXIMUM):
            self._view.apply(records)
            for number, table, key, _value in records:
                self._forget(number, table, key)
            self._applied = records[-1][0]
            count += len(records)
        return count

    def _forget(self, number: int, table: int, key: bytes) -> None:
        ahead = self._ahead.get((table, key))
        if ahead is not None and ahead.number <= number:
            del self._ahead[table, key]
