"""Cursors as an operator sees them: what waits in each, and what is ahead.

Owns: a round over all of them now and then, and the alarm. Never: reads a message.
"""

import logging
from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import ALARM_S, Ahead, Forecast
from holdfast.broker.state.broker import Broker
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.cursor import CursorSeen
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

ROUND_PERIOD_US: Final = 5 * SECOND_US
"""How often all of them are looked at: a scraper asks less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorQueue:
    """A cursor with what it has not released."""

    seen: CursorSeen
    ahead: Ahead
    exact: bool
    """False: there was too much to count, and there are at least so many messages."""


class CursorsSeen:
    """Looks at cursors."""

    def __init__(self, broker: Broker, forecast: Forecast) -> None:
        self._broker = broker
        self._forecast = forecast
        self._is_looking = False
        self._look_at_us = 0
        self._told: set[str] = set()
        self.found: tuple[CursorQueue, ...] = ()
        """All of them, as of the last round."""

    def look(self, now_us: int) -> None:
        """A second has passed: it may be time for a round."""
        if now_us >= self._look_at_us and not self._is_looking:
            self._is_looking, self._look_at_us = True, now_us + ROUND_PERIOD_US
            names = self._broker.cursors.names()
            self._broker.chores.begin(self._rows(names, EXACT), self._end_round)

    def _end_round(self, found: list[CursorQueue]) -> None:
        self._is_looking, self.found = False, tuple(found)
        soon = {
            row.seen.name: row
            for row in found
            if row.ahead.first_loss_in_s is not None and row.ahead.first_loss_in_s <= ALARM_S
        }
        for name in soon.keys() - self._told:
            fields = {
                "cursor": name,
                "messages": soon[name].ahead.messages,
                "first_loss_in_s": soon[name].ahead.first_loss_in_s,
            }
            log.warning("cursor loses messages soon", extra={"fields": fields})
        self._told = set(soon)

    async def page(self, after: str, limit: int) -> tuple[list[CursorQueue], str | None]:
        """The first cursors after one by name, and where the next page begins."""
        names = [name for name in self._broker.cursors.names() if name > after]
        page = names[:limit]
        rows = await self._broker.chores.outcome(self._rows(page, LIST_EFFORT_MAXIMUM))
        return rows, page[-1] if len(names) > limit else None

    async def show(self, name: str) -> CursorQueue | None:
        """One cursor, counted to the end, if it is there."""
        rows = await self._broker.chores.outcome(self._rows([name], EXACT))
        return rows[0] if rows else None

    def _rows(self, names: list[str], effort_maximum: int) -> Pieces[list[CursorQueue]]:
        """Those that are still there."""
        rows, inquiry = [], self._broker.log.inquire(effort_maximum)
        for name in names:
            seen = self._broker.cursors.of(name)
            if seen is not None:
                rows.append((yield from self._row(seen, inquiry)))
            yield from inquiry.rest()
        return rows

    def _row(self, seen: CursorSeen, inquiry: Inquiry) -> Pieces[CursorQueue]:
        ahead = yield from self._forecast.of_cursor(inquiry, seen, self._broker.now_us())
        return CursorQueue(seen=seen, ahead=ahead, exact=inquiry.is_exact)
