"""Durable subscriptions of Pulsar as they are seen from outside."""

from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.pulsar.subscriptions import Subscriptions
from holdfast.broker.state.queues import OpenQueue
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription
from holdfast.kernel import GROUP_CONNECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSeen:
    """One of them."""

    name: str
    topic_name: str
    party: int
    created_at_offset: int
    reads: tuple[Subscription, ...]
    mark: int
    in_flight: int
    consumers: tuple[str, ...]
    """The names that they gave themselves."""


class SubscriptionsState:
    """Looks at one subscription at a time."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def names(self) -> list[str]:
        """What their queues are called, of the oldest first."""
        return [found.queue.record.owner for found in self._subscriptions.all()]

    def queues(self) -> list[tuple[int, int, int]]:
        """Party, queue and GROUP_CONNECTION of each from which consumers take."""
        return [
            (found.queue.party, found.queue.queue, GROUP_CONNECTION)
            for found in self._subscriptions.all()
            if found.queue.queue is not None
        ]

    def queue_of(self, party: int) -> int | None:
        """The queue of one from which consumers take."""
        found = self._subscriptions.of_party(party)
        return None if found is None else found.queue.queue

    def open(self, party: int) -> OpenQueue | None:
        """One of them, if consumers take from it."""
        found = self._subscriptions.of_party(party)
        if found is None or found.queue.queue is None:
            return None
        record = found.queue.record
        takers = tuple({consumer.client.handle for consumer in found.consumers})
        return OpenQueue(record.owner, party, found.queue.queue, record.reads, takers)

    def of(self, queue_name: str) -> SubscriptionSeen | None:
        """The subscription whose queue is called that, if it is there."""
        found = self._subscriptions.of_queue(queue_name)
        if found is None:
            return None
        record = found.queue.record
        return SubscriptionSeen(
            name=found.name,
            topic_name=found.topic_name,
            party=record.party,
            created_at_offset=record.created_at_offset,
            reads=record.reads,
            mark=found.queue.mark(),
            in_flight=found.queue.in_flight(),
            consumers=tuple(sorted(it.asked.consumer_name for it in found.consumers)),
        )

    def backlog(self, queue_name: str, inquiry: Inquiry) -> Pieces[int]:
        """Messages that nobody has; none of one that has ended."""
        found = self._subscriptions.of_queue(queue_name)
        return 0 if found is None else (yield from self._subscriptions.backlog(found, inquiry))
