"""How many messages wait for a session: exact, without those that have expired.

Owns: counting in pieces. Never: holds up the loop for long: where messages may have expired their
records are read, which takes about a microsecond each.
"""

import asyncio
from typing import Final

from holdfast.broker.dispatch.queues import (
    OldestKept,
    QueueAtRest,
    Waiting,
    own_flights,
    queue_at_rest,
)
from holdfast.broker.dispatch.sessions import Attached
from holdfast.broker.server import Server
from holdfast.kernel import describe_state
from holdfast.protocols.mqtt.session import Session, Subscription, own_of

MESSAGES_AT_ONCE: Final = 20_000
"""Messages that are counted in one turn: some tens of milliseconds at most."""


class QueueLengths:
    """Counts the queues of sessions, attached or at rest."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._log = server.stages.kernel.log
        self._oldest = OldestKept(self._log)

    async def attached(self, attached: Attached) -> tuple[int, int, int]:
        """Messages from the mark on, those of them in flight, and the mark."""
        assert attached.queue is not None
        dispatch = self._server.stages.kernel.dispatch
        mark, in_flight = dispatch.mark(attached.queue), dispatch.in_flight(attached.queue)
        queue = QueueAtRest(b"", mark, own_of(attached.subscriptions))
        return await self._count(attached.session.party, queue), in_flight, mark

    async def at_rest(
        self, session: Session, subscriptions: tuple[Subscription, ...]
    ) -> tuple[int, int, int]:
        """The same of a session that is away: what it would get if it came back now."""
        queue = queue_at_rest(self._log, session, own_of(subscriptions))
        in_flight = len(describe_state(queue.state)["in_flight"]) if queue.state else 0
        now_us = self._server.now_us()
        if session.expired(now_us):
            return 0, 0, queue.mark
        oldest = 0
        if session.bounded:
            oldest = self._oldest.offset(self._server.config.queue_ttl_s, now_us)
        waiting = await self._count(session.party, queue, oldest)
        return waiting + len(own_flights(queue.state)), in_flight, queue.mark

    async def _count(self, party: int, queue: QueueAtRest, oldest: int = 0) -> int:
        begin, end = max(queue.mark, oldest), self._log.durable_offset()
        if not queue.subscriptions or begin >= end:
            return 0
        tables = [item.table() for item in queue.subscriptions]
        pieces = self._log.count(tables, party, begin, end) // MESSAGES_AT_ONCE + 1
        step = -(-(end - begin) // pieces)
        total, now_us = 0, self._server.now_us()
        for first in range(begin, end, step):
            piece = Waiting(
                *(self._log, party, queue, min(first + step, end)),
                begin=first,
                unexpired_at_us=now_us,
            )
            total += piece.count
            await asyncio.sleep(0)
        return total
