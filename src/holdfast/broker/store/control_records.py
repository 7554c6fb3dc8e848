"""Control records: written to the log, looked up in the view.

Owns: what has been appended and is not in the view yet. Never: decides what a record means.

Invariants:
1. `get` answers with what was put last, whether or not the view has it yet.
2. The view learns of a record from the log alone: running and recovering are the same code.
3. While the broker serves, a worker writes the view, so that the loop waits for no disk and looks
   at no row twice. What the view lacks stays here, and its bound is kept by who causes it: no
   session is opened that has to be kept (`has_room`), and whoever can wait does.

Flow: sessions, losses -> log (truth) -> view (look-ups).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from holdfast.broker.chores import PIECE_EFFORT
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.broker.world import Workers
from holdfast.kernel import Log

BATCH_RECORDS_MAXIMUM = 4_096
"""Control records taken over at once where nobody waits: at a start, and at the end."""
HANDED_RECORDS_MAXIMUM = 512
"""Control records handed to the worker at once. To read them and to forget them afterwards takes
the loop less than a millisecond; to write them, in no order, takes the worker some ten."""
EFFORT_UNBOUNDED = 2**64 - 1
BEHIND_RECORDS_MAXIMUM = 65_536
"""Records put that the view does not have yet: what a storm of sessions writes in three seconds in
which the disk stands still, at some 500 bytes each."""


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
        self._applied = self._saved = 0
        """Control numbers: all up to here have been read and what they say is in the view, and so
        much of that does the view know."""
        self._workers: Workers | None = None
        self._commit: Callable[[], None]
        self._soon: Callable[[], None]
        self._is_writing = False
        self._read_until = self._written_until = 0
        """Log positions: of everything durable up to here the records have been read, and the view
        has what they say."""
        self._waiting: list[asyncio.Future[None]] = []
        self._held_before: int | None = None
        """The view stands still before the record of this number."""

    def recover(self, next_number: int) -> int:
        """Brings the view in line with a log that was just opened; returns how many records it
        read."""
        try:
            ahead = self._view.applied() >= max(next_number, 1)
            # What was removed by a record that has gone it would have for ever.
            has_missed = self._view.applied() + 1 < self._log.whole_controls_from()
        except sqlite3.DatabaseError:
            ahead = has_missed = True
        if ahead or has_missed:
            self._view.clear()
        self._applied = self._saved = self._view.applied()
        count, is_all = 0, False
        while not is_all:
            taken, is_all = self._take_over()
            count += taken
        return count

    def keep_up(
        self, workers: Workers, commit: Callable[[], None], soon: Callable[[], None]
    ) -> None:
        """From now on a worker, the only one, writes the view; `commit` asks for what that waits
        for, and `soon` for a turn when it has written."""
        self._workers, self._commit, self._soon = workers, commit, soon

    def put(self, table: Table, key: bytes, value: bytes, now_us: int) -> int:
        """Appends a record, an empty `value` removing the key; returns the log position at which it
        is durable. It has survived nothing before that."""
        position = self._log.append_control(table, key, value, now_us)
        self._ahead[table, key] = _Ahead(value, self._log.next_control_number() - 1)
        if len(self._ahead) >= HANDED_RECORDS_MAXIMUM:
            self._keep_up()
        return position

    def put_delivery_state(self, key: bytes, value: bytes, now_us: int) -> int:
        """Appends to the kernel's own table, which has no view."""
        return self._log.append_control(Table.DELIVERY_STATE, key, value, now_us)

    def get(self, table: Table, key: bytes) -> bytes:
        """The newest value of a key; empty if there is none."""
        ahead = self._ahead.get((table, key))
        return self._view.get(table, key) if ahead is None else ahead.value

    def ahead(self, table: Table) -> Iterator[bytes]:
        """Values of a table that the view does not have yet."""
        return (known.value for (of, _), known in self._ahead.items() if of == table)

    def has_room(self) -> bool:
        """False while so much is ahead of the view that no more should be put."""
        return len(self._ahead) < BEHIND_RECORDS_MAXIMUM

    def is_near(self) -> bool:
        """True if little is ahead of the view: whoever writes many records, and can wait, waits for
        this."""
        return len(self._ahead) < 2 * HANDED_RECORDS_MAXIMUM

    def refresh(self) -> View:
        """The view; while the broker serves it may be a little behind what is durable."""
        self._hand_over()
        return self._view

    def catch_up(self) -> View:
        """The view with all that is durable, however long that takes. No thread may be writing it:
        `close` and a simulation know that none is."""
        is_all = False
        while not is_all:
            _, is_all = self._take_over()
        return self._view

    def has_all_before(self, position: int) -> bool:
        """True once the view has all that lies before a log position, which is durable."""
        self._hand_over()
        return self._workers is None or self._written_until >= position

    def last_ahead(self, table: Table) -> int:
        """The number of the last record of a table that was put and that the view does not have
        yet; 0 if it has all of them."""
        ahead = (known.number for (of, _), known in self._ahead.items() if of == table)
        return max(ahead, default=0)

    def has_all_up_to(self, number: int) -> bool:
        """True once the view has all up to this number, which is durable; it may be behind with
        what came after it."""
        is_whole = self.has_all_before(self._log.durable_position())
        return is_whole or self._applied >= number

    async def caught_up(self) -> None:
        """Returns when the view has all that is durable now."""
        durable = self._log.durable_position()
        while not self.has_all_before(durable):
            await self._written_once()

    def advance(self) -> None:
        """Lets the view know how far it has read when there was nothing for it: acknowledgement
        progress takes control numbers too, and need not be read again at the next start."""
        self._hand_over()
        number = self._applied
        if not self._is_writing and number > self._saved:
            self._write(partial(self._view.advance, number), partial(self._knows, number))

    def hold_before(self, number: int) -> None:
        """From now on the view takes over no record of this number or behind it, which no record
        has yet; `go_on` ends it."""
        self._held_before = number

    async def comes_to(self, number: int) -> None:
        """Returns when the view has all before the record of this number, which is durable; if it
        is held there, nothing behind it."""
        self._hand_over()
        while self._is_writing or self._applied < number - 1:
            await self._written_once()
            self._hand_over()

    def go_on(self) -> None:
        """The view takes over what comes."""
        self._held_before = None
        self._hand_over()

    def close(self) -> None:
        """Closes the view, which has all that is durable."""
        if self._workers is not None:
            self._workers.stop()
        self.catch_up()
        self._view.close()

    async def _written_once(self) -> None:
        """Waits for the worker, if it is at work."""
        if not self._is_writing:
            await asyncio.sleep(0)
            return
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(kept)
        await kept

    def _keep_up(self) -> None:
        self._hand_over()
        if self._workers is not None and not self._is_writing:
            # Nothing of what was put is durable, and nobody else may be waiting for that.
            self._commit()

    def _hand_over(self) -> None:
        if self._workers is None:
            self.catch_up()
            return
        durable, held = self._log.durable_position(), self._held_before
        if self._is_writing or self._read_until == durable or held == self._applied + 1:
            return
        records, reached, is_all = self._log.controls(
            self._applied + 1, HANDED_RECORDS_MAXIMUM, PIECE_EFFORT
        )
        if held is not None and reached >= held:
            records = [record for record in records if record[0] < held]
            reached, is_all = held - 1, False
        if is_all:
            self._read_until = durable
        if records:
            self._write(partial(self._view.apply, records), partial(self._known, records, reached))
            return
        # The next one who asks goes on behind records that are none of the view's.
        self._advanced(reached)
        if is_all:
            self._written_until = durable

    def _write(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        if self._workers is None:
            work()
            then()
        else:
            self._is_writing = True
            self._workers.run(work, partial(self._written, then))

    def _written(self, then: Callable[[], None], _nothing: None) -> None:
        self._is_writing = False
        then()
        self._written_until = self._read_until
        self._hand_over()
        waiting, self._waiting = self._waiting, []
        for kept in waiting:
            # Whoever waited may have gone.
            if not kept.done():
                kept.set_result(None)
        self._soon()

    def _take_over(self) -> tuple[int, bool]:
        """Returns how many records, and true if these were all."""
        records, reached, is_all = self._log.controls(
            self._applied + 1, BATCH_RECORDS_MAXIMUM, EFFORT_UNBOUNDED
        )
        if records:
            self._view.apply(records)
        self._known(records, reached)
        return len(records), is_all

    def _known(self, records: list[tuple[int, int, bytes, bytes]], reached: int) -> None:
        """The view has these, and there are no others up to this number."""
        for number, table, key, _value in records:
            self._forget(number, table, key)
            self._knows(number)
        self._advanced(reached)

    def _knows(self, number: int) -> None:
        self._saved = max(self._saved, number)

    def _advanced(self, number: int) -> None:
        self._applied = max(self._applied, number)

    def _forget(self, number: int, table: int, key: bytes) -> None:
        ahead = self._ahead.get((table, key))
        if ahead is not None and ahead.number <= number:
            del self._ahead[table, key]
