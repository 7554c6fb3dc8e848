"""How many messages wait for a session: exact, without those that have expired.

Never: holds up the loop; what takes long is counted in pieces.
"""

from typing import NamedTuple

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_at_rest import QueueAtRest, own_flights, waiting
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.queues import in_flight_at_rest
from holdfast.broker.state.sessions import AttachedSeen
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription, own_of


class QueueLength(NamedTuple):
    """What waits for a session."""

    messages: int
    """From the mark on, those in flight among them."""
    in_flight: int
    mark: int


class QueueLengths:
    """Counts the queues of sessions, attached or at rest."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.log
        self._queues = broker.queues
        self._now_us = broker.now_us

    def attached(self, inquiry: Inquiry, attached: AttachedSeen) -> Pieces[QueueLength]:
        """Of a session that is connected."""
        assert attached.queue is not None
        seen = self._queues.of(attached.queue)
        session, own = attached.session, own_of(attached.subscriptions)
        queue = QueueAtRest(session.party, session.created_at_offset, b"", seen.mark, own)
        count = yield from self._count(inquiry, queue)
        return QueueLength(count, seen.in_flight, seen.mark)

    def at_rest(
        self, inquiry: Inquiry, session: Session, subscriptions: tuple[Subscription, ...]
    ) -> Pieces[QueueLength]:
        """The same of a session that is away: what it would get if it came back now."""
        record = own_queue(session, own_of(subscriptions))
        queue = self._queues.at_rest(record)
        if session.expired(self._now_us()):
            return QueueLength(0, 0, queue.mark)
        quota, flights = self._queues.quota(record), len(own_flights(queue.state))
        count = yield from self._count(inquiry, queue, self._queues.oldest_kept(quota))
        if quota.messages is not None:
            # What is in flight takes room, and is sent again although there is none.
            count = min(count, max(quota.messages - flights, 0))
        return QueueLength(count + flights, in_flight_at_rest(queue), queue.mark)

    def _count(self, inquiry: Inquiry, queue: QueueAtRest, oldest: int = 0) -> Pieces[int]:
        found = yield from waiting(
            inquiry,
            queue,
            self._log.durable_offset(),
            begin=oldest,
            unexpired_at_us=self._now_us(),
        )
        return found.count
