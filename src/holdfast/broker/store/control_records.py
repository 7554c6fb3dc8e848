"""Control records: written to the log, looked up in the view.

Owns: what has been appended and is not in the view yet. Never: decides what a record means.

Invariants:
1. `get` answers with what was put last, whether or not the view has it yet.
2. The view learns of a record from the log alone: running and recovering are the same code.
3. What waits for the view is bounded. While it serves it catches up in pieces, one a turn
   (`keep_up`); what is not durable yet is bounded by what may wait for the disk.
4. What the view has written is brought into its file beside the loop, which waits for no disk.

Flow: sessions, losses -> log (truth) -> view (look-ups).
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.broker.world import Workers
from holdfast.kernel import Log

BATCH_RECORDS_MAXIMUM = 4_096
"""Control records taken over at once where nobody waits: at a start, and at the end."""
PIECE_RECORDS_MAXIMUM = 128
"""The same in one piece: each takes 17 us where 200 000 sessions lie in no order, so some 2 ms."""
BEHIND_RECORDS_MAXIMUM = 16_384
"""Records put that the view does not have yet: a bound for memory when sessions come in a storm.
Beyond it whoever puts a piece's worth of records also takes over a piece."""
UNSAVED_RECORDS = 1_024
"""Taken over since the view's file was brought up to date: some thousand pages, 4 MiB."""
UNSAVED_RECORDS_MAXIMUM = 16_384
"""With so many the view takes over no more until its file is up to date, so that what it has
written beside it stays at some 100 MiB."""


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
        self._chores: Chores | None = None
        self._commit: Callable[[], None]
        self._workers: Workers
        self._is_catching_up = False
        self._puts = 0
        self._unsaved = 0
        self._is_saving = False

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

    def keep_up(self, chores: Chores, commit: Callable[[], None], workers: Workers) -> None:
        """From now on the loop is not held up: the view catches up in pieces, `commit` asks for
        what they wait for, and one of the workers sees to the view's file."""
        self._chores, self._commit, self._workers = chores, commit, workers
        self._view.save_elsewhere()

    def put(self, table: Table, key: bytes, value: bytes, now_us: int) -> int:
        """Appends a record, an empty `value` removing the key; returns the log position at which it
        is durable. It has survived nothing before that."""
        position = self._log.append_control(table, key, value, now_us)
        self._ahead[table, key] = _Ahead(value, self._log.next_control_number() - 1)
        self._puts += 1
        if self._puts >= PIECE_RECORDS_MAXIMUM:
            self._puts = 0
            self._begin_to_catch_up()
            if len(self._ahead) >= BEHIND_RECORDS_MAXIMUM:
                self._take_over(PIECE_RECORDS_MAXIMUM)
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
        """False while whoever writes many records, and can wait, leaves time to catch up."""
        return len(self._ahead) < BEHIND_RECORDS_MAXIMUM // 4

    def refresh(self) -> View:
        """The view, up to date with what is durable; if it lacks more than a piece, it has begun to
        catch up."""
        if self._ahead and not self._is_catching_up:
            self._take_over_some()
        return self._view

    def catch_up(self) -> View:
        """The view with all that is durable, however long that takes."""
        self._catch_up()
        return self._view

    async def caught_up(self) -> None:
        """Returns when the view has all that is durable now."""
        if self._chores is None:
            self._catch_up()
        else:
            await self._chores.outcome(self._taking_over())

    def advance(self) -> None:
        """Takes over what is lacking, in pieces. Where there was nothing for the view it is told
        how far it has read: acknowledgement progress takes control numbers too, and need not be
        read again at the next start."""
        if self._is_catching_up or not self._take_over_some():
            return
        position, number = self._end_before
        if self._log.durable_position() >= position and number > self._applied:
            self._applied = number
            self._view.advance(number)
        self._end_before = self._log.end_position(), self._log.next_control_number() - 1

    def close(self) -> None:
        """Closes the view."""
        if self._chores is not None:
            self._workers.stop()
        self._view.close()

    def _take_over_some(self) -> bool:
        """A piece of what the view lacks; true if that was all."""
        if self._chores is None:
            self._catch_up()
        elif self._take_over(PIECE_RECORDS_MAXIMUM) == PIECE_RECORDS_MAXIMUM:
            self._begin_to_catch_up()
            return False
        return True

    def _taking_over(self) -> Pieces[None]:
        while self._take_over(PIECE_RECORDS_MAXIMUM) == PIECE_RECORDS_MAXIMUM:
            yield None

    def _begin_to_catch_up(self) -> None:
        if self._chores is not None and not self._is_catching_up:
            self._is_catching_up = True
            self._chores.begin(self._catching_up(), self._caught_up)

    def _catching_up(self) -> Pieces[None]:
        """Ends when the view lacks less than a piece."""
        while True:
            durable = self._log.durable_position()
            taken = self._take_over(PIECE_RECORDS_MAXIMUM)
            if taken < PIECE_RECORDS_MAXIMUM and len(self._ahead) < PIECE_RECORDS_MAXIMUM:
                return
            if self._unsaved >= UNSAVED_RECORDS_MAXIMUM:
                yield lambda: not self._is_saving
            elif taken:
                yield None
            else:
                self._commit()
                yield partial(self._is_durable_beyond, durable)

    def _is_durable_beyond(self, position: int) -> bool:
        return self._log.durable_position() > position

    def _caught_up(self, _nothing: None) -> None:
        self._is_catching_up = False

    def _catch_up(self) -> int:
        count = 0
        while taken := self._take_over(BATCH_RECORDS_MAXIMUM):
            count += taken
        return count

    def _take_over(self, records_maximum: int) -> int:
        records = self._log.controls(self._applied + 1, records_maximum)
        if not records:
            return 0
        self._view.apply(records)
        for number, table, key, _value in records:
            self._forget(number, table, key)
        self._applied = records[-1][0]
        self._unsaved += len(records)
        if self._chores is not None and self._unsaved >= UNSAVED_RECORDS and not self._is_saving:
            self._is_saving = True
            self._unsaved = 0
            self._workers.run(self._view.save, self._saved)
        return len(records)

    def _saved(self, _nothing: None) -> None:
        self._is_saving = False
        if self._chores is not None:
            self._chores.look_again()

    def _forget(self, number: int, table: int, key: bytes) -> None:
        ahead = self._ahead.get((table, key))
        if ahead is not None and ahead.number <= number:
            del self._ahead[table, key]
