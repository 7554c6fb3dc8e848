"""How many messages wait for a session: exact, without those that have expired.

Never: holds up the loop; what takes long is counted in pieces.
"""

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_at_rest import (
    QueueAtRest,
    own_flights,
    queue_at_rest,
    waiting,
)
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom
from holdfast.core.subscription import Subscription, own_of
from holdfast.kernel import describe_state


class QueueLengths:
    """Counts the queues of sessions, attached or at rest."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._log = server.stages.kernel.log
        self._kept = KeptFrom(self._log)

    def attached(self, inquiry: Inquiry, attached: Attached) -> Pieces[tuple[int, int, int]]:
        """Messages from the mark on, those of them in flight, and the mark."""
        assert attached.queue is not None
        dispatch = self._server.stages.kernel.dispatch
        mark, in_flight = dispatch.mark(attached.queue), dispatch.in_flight(attached.queue)
        session, own = attached.session, own_of(attached.subscriptions)
        queue = QueueAtRest(session.party, session.created_at_offset, b"", mark, own)
        count = yield from self._count(inquiry, queue)
        return count, in_flight, mark

    def at_rest(
        self, inquiry: Inquiry, session: Session, subscriptions: tuple[Subscription, ...]
    ) -> Pieces[tuple[int, int, int]]:
        """The same of a session that is away: what it would get if it came back now."""
        record = own_queue(session, own_of(subscriptions))
        queue = queue_at_rest(self._log, record)
        in_flight = len(describe_state(queue.state)["in_flight"]) if queue.state else 0
        now_us = self._server.now_us()
        if session.expired(now_us):
            return 0, 0, queue.mark
        oldest, quota = 0, self._server.stages.queues.quota(record)
        if not quota.step_bytes:
            oldest = self._kept.by_age(quota, now_us)
        count = yield from self._count(inquiry, queue, oldest)
        return count + len(own_flights(queue.state)), in_flight, queue.mark

    def _count(self, inquiry: Inquiry, queue: QueueAtRest, oldest: int = 0) -> Pieces[int]:
        found = yield from waiting(
            *(inquiry, queue, self._log.durable_offset()),
            begin=oldest,
            unexpired_at_us=self._server.now_us(),
        )
        return found.count
