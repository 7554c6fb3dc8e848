"""One moment of the whole broker, looked at while everything goes on.

Owns: which moment it is, and what of it is still to be copied. Never: knows what it is for.

A moment is taken in a turn, between two batches: the kernel has put into the log what deliveries
have come to, so memory and log say the same, and `offset` names it. To take it costs next to
nothing. What is in flight, delivery states and retained messages are copied by the kernel before
they change, or in pieces; what control records say is read from the view, which stands still before
the first record behind the moment until a reader holds its transaction
([decision 0024](docs/adr/0024-tables-of-one-moment.md)).

Invariants:
1. One moment at a time is copied; who wants the next one waits.
2. Whatever becomes of who asked, what the kernel copies is taken, so that it does not pile up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.broker.chores import PIECE_EFFORT, Chores, Pieces
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.durability import Promises

Columns = dict[str, Any]
"""Rows as the kernel hands them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Which moment it is."""

    offset: int
    """Everything below it had been stored."""
    begin_offset: int
    """The oldest message that the log had."""
    at_us: int
    position: int
    control_number: int
    """Of the first control record behind it."""
    attached: list[Attached]
    """Who was connected. Of a session on record its record says more."""


class Moments:
    """Takes moments."""

    def __init__(
        self,
        kernel: KernelStages,
        records: ControlRecords,
        promises: Promises,
        chores: Chores,
        attached: Callable[[], list[Attached]],
        soon: Callable[[], None],
    ) -> None:
        self._log = kernel.log
        self._deliveries = kernel.deliveries
        self._records = records
        self._promises = promises
        self._chores = chores
        self._attached = attached
        self._soon = soon
        self.wanted: asyncio.Future[Moment] | None = None
        self._one = asyncio.Lock()

    def take(self, now_us: int) -> None:
        """In a turn, when the log has what deliveries have come to: if anybody wants a moment, this
        is it."""
        wanted, self.wanted = self.wanted, None
        if wanted is None or wanted.done():
            return
        self._log.begin_instant()
        self._deliveries.begin_instant()
        number = self._log.next_control_number()
        self._records.hold_before(number)
        wanted.set_result(
            Moment(
                offset=self._log.end_offset(),
                begin_offset=self._log.begin_offset(),
                at_us=now_us,
                position=self._log.end_position(),
                control_number=number,
                attached=self._attached(),
            )
        )

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Moment]:
        """A moment, durable, with the view standing at it for as long as nobody says `go_on`."""
        async with self._one:
            self.wanted = wanted = asyncio.get_running_loop().create_future()
            self._soon()
            try:
                moment = await wanted
                await self._promises.wait_durable(moment.position)
                await self._records.comes_to(moment.control_number)
                yield moment
            finally:
                self.go_on()
                await self._drain()

    def go_on(self) -> None:
        """Somebody holds a transaction of the view: it may take over what comes."""
        self._records.go_on()

    async def in_flight(self) -> tuple[Columns, bool]:
        """Some more of what was in flight to who is connected, and true if that was all."""
        return await self._chores.outcome(self._in_flight())

    async def states(self, after: int | None) -> tuple[Columns, Columns, int | None]:
        """What delivery states behind a party have acknowledged, and have in flight; up to which
        party, `None` if that was all."""
        return await self._chores.outcome(self._states(after))

    async def retained(self) -> tuple[Columns, bool]:
        """Some more of the retained messages, and true if that was all."""
        return await self._chores.outcome(self._retained())

    async def _drain(self) -> None:
        is_all = False
        while not is_all:
            _, is_all = await self.in_flight()
        _, _, after = await self.states(None)
        while after is not None:
            _, _, after = await self.states(after)
        is_all = False
        while not is_all:
            _, is_all = await self.retained()

    def _in_flight(self) -> Pieces[tuple[Columns, bool]]:
        yield None
        columns, is_all = self._deliveries.instant_piece(PIECE_EFFORT)
        self._log.note_effort(columns["rows"])
        return columns, is_all

    def _states(self, after: int | None) -> Pieces[tuple[Columns, Columns, int | None]]:
        yield None
        (acknowledged, in_flight), reached = self._log.states_piece(after, PIECE_EFFORT)
        return acknowledged, in_flight, reached

    def _retained(self) -> Pieces[tuple[Columns, bool]]:
        yield None
        return self._log.retained_piece(PIECE_EFFORT)
