"""What sessions at rest have waiting for them, all together.

Owns: the count, on demand. Never: counts for a scrape: each queue is looked up in the log's index,
which takes microseconds to a millisecond, and there may be a million of them.

Invariant: a request is counted in pieces, and requests wait for one another.
"""

import asyncio
import heapq
from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import Ahead, Forecast
from holdfast.broker.observe.queue_length import QueueLengths
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.recorded import RestingSession
from holdfast.broker.store.questions import SESSION_EFFORT

LONGEST_MAXIMUM: Final = 20


@dataclass(frozen=True, slots=True)
class BehindAtRest:
    """A session at rest with messages waiting."""

    client_identifier: str
    messages: int
    ahead: Ahead


@dataclass(frozen=True, slots=True)
class Backlog:
    """What some sessions at rest have waiting."""

    sessions: int
    behind: tuple[BehindAtRest, ...]
    last: str | None
    """The last of these sessions."""

    def longest(self) -> list[BehindAtRest]:
        """Those with the most messages."""
        return heapq.nlargest(
            LONGEST_MAXIMUM, self.behind, key=lambda it: (it.messages, it.client_identifier)
        )


class Backlogs:
    """Counts a page of sessions at a time."""

    def __init__(self, broker: Broker, forecast: Forecast) -> None:
        self._broker = broker
        self._forecast = forecast
        self._lengths = QueueLengths(broker)
        self._one_at_a_time = asyncio.Lock()

    async def count(self, after: str, limit: int) -> Backlog:
        """Of the first sessions after one."""
        broker = self._broker
        async with self._one_at_a_time:
            resting = await broker.recorded.at_rest(after, broker.now_us(), limit)
            return await broker.chores.outcome(self._counted(resting))

    def _counted(self, resting: list[RestingSession]) -> Pieces[Backlog]:
        inquiry, last = self._broker.log.inquire(), None
        behind: list[BehindAtRest] = []
        for each in resting:
            yield from inquiry.rest(SESSION_EFFORT)
            session, subscriptions = each.read()
            last = session.client_identifier
            length = yield from self._lengths.at_rest(inquiry, session, subscriptions)
            if length.messages:
                now_us = self._broker.now_us()
                ahead = yield from self._forecast.of_session(
                    inquiry, session, subscriptions, now_us
                )
                behind.append(BehindAtRest(last, length.messages, ahead))
        return Backlog(len(resting), tuple(behind), last)
