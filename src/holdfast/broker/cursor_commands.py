"""What can be done to cursors from outside: make, hold, release, let go, fork, move, remove.

Owns: who may do what to which, and the order of the steps of each. Never: knows how an answer
looks.

Invariants:
1. A command that is answered is durable, a release apart: that costs nothing when it is lost, since
   whoever has released goes on from its own record.
2. What cannot be done raises a `CommandRefusedError` with its reason, and has changed nothing.
3. While a fork is on its way nothing is released: retention would let go of what the original needs
   no more before it knows of the fork.

Flow: admin -> here -> delivery.cursors.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.turn import Stages
from holdfast.core.cursor import CursorSeen
from holdfast.core.limits import CURSORS_MAXIMUM
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

FILTERS_SHOWN: Final = 10
"""Of a selection, in a sentence."""
Begin = Literal["earliest", "latest"] | int
"""Where a new cursor begins: at the first offset from which on the log is whole, at its end, or at
an offset between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks for something."""

    user_name: str
    """Empty where nobody has to say who they are."""
    administrator: bool

    def may_change(self, cursor: CursorSeen) -> bool:
        """True if it may remove this one: its own, or as an administrator any."""
        return self.administrator or self.user_name == cursor.made_by


class CursorCommands:
    """Carries them out."""

    def __init__(self, stages: Stages, records: ControlRecords, now_us: Callable[[], int]) -> None:
        self._stages = stages
        self._cursors = stages.cursors
        self._log = stages.kernel.log
        self._records = records
        self._now_us = now_us
        self._fork_or_release = asyncio.Lock()

    async def make(
        self, name: str, selection: Sequence[str], begin: Begin, asker: Asker
    ) -> CursorSeen:
        """There is a cursor of this name with this selection. One that was there stays where it
        is."""
        known = self._cursors.find(name)
        if known is None:
            self._check_room()
            place = self._place(begin)
            selected = list(dict.fromkeys(selection))
            self._cursors.make(name, selected, place, asker.user_name, self._now_us())
            _tell("cursor made", name, asker)
        elif set(known.selection) != set(selection):
            sentence = (
                f"the cursor {name!r} selects {_listed(known.selection)}, not"
                f" {_listed(selection)}: what it was not asked to keep may be gone; take another"
                " name for another selection"
            )
            raise CommandRefusedError(Refusal.OTHER_SELECTION, sentence)
        await self._durable()
        return self.find(name)

    async def hold(self, name: str, holder: str, held_as: str) -> CursorSeen:
        """This holder has it, and others are refused until its hold has ended. Without a word how
        it calls itself it is called what it was called before."""
        before = self.find(name)
        held_as = held_as or (before.held_as if before.holder == holder else holder)
        if not self._cursors.hold(name, holder, held_as, self._now_us()):
            raise self._held(before)
        if before.holder != holder:
            await self._durable()
        return self.find(name)

    async def release(self, name: str, holder: str, offset: int, *, let_go: bool) -> CursorSeen:
        """What is below an offset needs to be kept no more, as its holder says, or who was it last;
        `let_go`: it is its holder no more either."""
        async with self._fork_or_release:
            held = self.find(name)
            if held.holder not in ("", holder):
                raise self._held(held)
            if offset > self._log.durable_offset():
                raise self._beyond_end(offset)
            now_us = self._now_us()
            self._cursors.release(name, offset, now_us)
            if let_go:
                self._cursors.let_go(name, now_us)
            elif held.holder:
                self._cursors.hold(name, holder, held.held_as, now_us)
        return self.find(name)

    async def move(self, name: str, place: Begin) -> CursorSeen:
        """Its place is elsewhere, if nobody holds it."""
        async with self._fork_or_release:
            cursor = self.find(name)
            if cursor.holder:
                raise self._held(cursor)
            self._cursors.move(name, self._place(place), self._now_us())
        await self._durable()
        log.info("cursor moved", extra={"fields": {"cursor": name, "from": cursor.place}})
        return self.find(name)

    async def fork(self, original: str, name: str, asker: Asker) -> CursorSeen:
        """Another one with the same selection, at the same place."""
        async with self._fork_or_release:
            self.find(original)
            if self._cursors.find(name) is not None:
                sentence = f"there is a cursor {name!r} already; take another name"
                raise CommandRefusedError(Refusal.NAME_TAKEN, sentence)
            self._check_room()
            self._cursors.fork(original, name, asker.user_name, self._now_us())
            await self._durable()
            await self._records.caught_up()
        _tell("cursor forked", name, asker)
        return self.find(name)

    async def remove(self, name: str, asker: Asker) -> None:
        """It is gone, whoever holds it."""
        cursor = self.find(name)
        if not asker.may_change(cursor):
            sentence = (
                f"the cursor {name!r} was made by {cursor.made_by!r}: that user or an"
                " administrator removes it"
            )
            raise CommandRefusedError(Refusal.NOT_YOURS, sentence)
        self._cursors.remove(name, self._now_us())
        await self._durable()
        _tell("cursor removed", name, asker)

    def find(self, name: str) -> CursorSeen:
        """One cursor; refused if there is none."""
        found = self._cursors.find(name)
        if found is None:
            raise self.missing(name)
        return found

    @staticmethod
    def missing(name: str) -> CommandRefusedError:
        """There is no cursor of this name."""
        sentence = f"no cursor is called {name!r}: it was never made, or it has been removed"
        return CommandRefusedError(Refusal.NO_SUCH_CURSOR, sentence)

    def _place(self, begin: Begin) -> int:
        whole_from, end = self._log.whole_from(), self._log.durable_offset()
        if begin == "earliest":
            return whole_from
        if begin == "latest":
            return end
        if begin < whole_from:
            sentence = f"offset {begin} is gone: the log begins at offset {whole_from}"
            raise CommandRefusedError(Refusal.GONE, sentence)
        if begin > end:
            raise self._beyond_end(begin)
        return begin

    def _check_room(self) -> None:
        if len(self._cursors) >= CURSORS_MAXIMUM:
            sentence = f"there are {CURSORS_MAXIMUM} cursors; remove those that nobody reads by"
            raise CommandRefusedError(Refusal.TOO_MANY, sentence)

    def _held(self, cursor: CursorSeen) -> CommandRefusedError:
        left_s = max(cursor.hold_ends_at_us - self._now_us(), 0) // SECOND_US
        sentence = (
            f"the cursor {cursor.name!r} is held by {cursor.held_as}"
            f" ({cursor.holder}); the hold ends {left_s} s from now if that one asks for"
            " nothing more"
        )
        return CommandRefusedError(Refusal.HELD, sentence)

    def _beyond_end(self, offset: int) -> CommandRefusedError:
        sentence = f"offset {offset} is beyond the log's end at {self._log.durable_offset()}"
        return CommandRefusedError(Refusal.BEYOND_END, sentence)

    async def _durable(self) -> None:
        await self._stages.promises.wait_durable(self._log.end_position())


def _tell(what: str, name: str, asker: Asker) -> None:
    log.info(what, extra={"fields": {"cursor": name, "user_name": asker.user_name}})


def _listed(filters: Sequence[str]) -> str:
    shown = ", ".join(sorted(filters)[:FILTERS_SHOWN])
    more = len(filters) - FILTERS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
