"""Durable subscriptions: each a queue on exactly one topic, which its consumers take from.

Owns: which subscriptions there are, where each begins, and that its queue is attached while it has
a consumer. Never: decides who may consume (consumers).

Invariants:
1. A subscription is there until somebody ends it, with a consumer or without.
2. Its queue is in the routes only while a consumer is connected; else it is implied, like a
   session's.

Flow: consumers -> here -> routes, delivery.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.delivery.shared_queue import SharedQueue
from holdfast.broker.pulsar.clients import ConnectedConsumer, DurableSubscription
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.limits import PULSAR_SUBSCRIPTIONS_MAXIMUM
from holdfast.core.queue_names import parse_subscription_queue_name, subscription_queue_name
from holdfast.core.subscription import Subscription
from holdfast.kernel import GROUP_CONNECTION
from holdfast.protocols.pulsar.fields import InitialPosition, SubType

QOS_MAXIMUM: Final = 2
"""A subscription reads whatever is stored."""


class Subscriptions:
    """All durable subscriptions of the broker."""

    def __init__(
        self, kernel: KernelStages, parties: Parties, names: QueueNames, queues: Queues
    ) -> None:
        self._kernel = kernel
        self._log = kernel.log
        self._routes = kernel.routes
        self._deliveries = kernel.deliveries
        self._parties = parties
        self._names = names
        self._queues = queues
        self._by_name: dict[str, DurableSubscription] = {}
        self._by_party: dict[int, DurableSubscription] = {}
        self._of_topic = Counter[str]()
        """How many there are of each topic."""

    def __len__(self) -> int:
        return len(self._by_name)

    def has_room(self) -> bool:
        """True if there may be another one."""
        return len(self._by_name) < PULSAR_SUBSCRIPTIONS_MAXIMUM

    def name_of(self, party: int) -> str:
        """The queue's name of a subscription's party; empty if it is none."""
        found = self._by_party.get(party)
        return "" if found is None else found.queue.record.owner

    def find(self, topic_name: str, name: str) -> DurableSubscription | None:
        """The subscription of this name to a topic."""
        return self._by_name.get(subscription_queue_name(name, topic_name))

    def of_queue(self, queue_name: str) -> DurableSubscription | None:
        """The subscription whose queue is called that."""
        return self._by_name.get(queue_name)

    def of_party(self, party: int) -> DurableSubscription | None:
        """The subscription that the log knows by this number."""
        return self._by_party.get(party)

    def all(self) -> list[DurableSubscription]:
        """All there are, the oldest first."""
        return list(self._by_name.values())

    def make(
        self, topic_name: str, name: str, position: InitialPosition, now_us: int
    ) -> DurableSubscription:
        """There is a subscription of this name from now on, which reads from here."""
        earliest = position is InitialPosition.EARLIEST
        # What the log has kept of what is older is for those who had it to get.
        place = self._log.whole_from() if earliest else self._log.end_offset()
        reads = Subscription(
            topic_filter=topic_name,
            qos=QOS_MAXIMUM,
            no_local=False,
            retain_as_published=True,
            identifier=None,
            from_offset=place,
            keeps_all=True,
        )
        queue_name = subscription_queue_name(name, topic_name)
        record = QueueRecord(
            party=self._parties.durable(now_us),
            kind="subscription",
            owner=queue_name,
            created_at_offset=place,
            reads=(reads,),
            queue_name=queue_name,
        )
        # Its state comes first: a record without one would be kept for from its creation on.
        self._queues.begin(record.party, place, [], now_us)
        found = self._add(record)
        found.queue.put(record, now_us)
        return found

    def prepare(self, subscription: DurableSubscription, now_us: int) -> Pieces[None]:
        """Somebody who takes from it is about to be attached."""
        yield from subscription.queue.prepare(now_us)

    def join(self, consumer: ConnectedConsumer, now_us: int) -> None:
        """The consumer, which has a receiver, takes its turn from now on."""
        subscription, receiver = consumer.subscription, consumer.receiver
        assert receiver is not None, "it is attached before it joins"
        if subscription.queue.queue is None:
            self._open(subscription, now_us)
        queue = subscription.queue.queue
        assert queue is not None, "it has just been opened"
        counts = consumer.asked.sub_type is SubType.SHARED
        self._deliveries.join_consumer(queue, receiver, counts_redeliveries=counts)

    def leave(self, consumer: ConnectedConsumer, now_us: int) -> None:
        """The consumer takes no more, and has left the kernel; without another one the queue
        rests."""
        subscription = consumer.subscription
        subscription.consumers.remove(consumer)
        if not subscription.consumers and subscription.queue.queue is not None:
            self._routes.remove(subscription.queue.queue)
            subscription.queue.rest(now_us)

    def end(self, subscription: DurableSubscription, now_us: int) -> int:
        """It is gone, with all that it had; returns the log position at which that is durable."""
        assert not subscription.consumers, "who takes from it leaves first"
        record = subscription.queue.record
        del self._by_name[record.owner]
        del self._by_party[record.party]
        self._names.release(record.queue_name)
        subscription.queue.end(now_us)
        self._of_topic[subscription.topic_name] -= 1
        if not self._of_topic[subscription.topic_name]:
            del self._of_topic[subscription.topic_name]
            self._log.keep_all(subscription.topic_name.encode(), False)
        return self._log.end_position()

    def recover(self, queues: Iterable[QueueRecord]) -> None:
        """Finds the subscriptions among these queues on record."""
        for record in queues:
            if record.kind == "subscription":
                found = self._add(record)
                # Nobody knows what had been sent of it when the broker ended.
                found.queue.sent_before = self._log.end_offset()

    def backlog(self, subscription: DurableSubscription, inquiry: Inquiry) -> Pieces[int]:
        """Messages that nobody has and nobody has had, and those that came back."""
        return (yield from self._queues.backlog(subscription.queue.record, inquiry))

    def _add(self, record: QueueRecord) -> DurableSubscription:
        name, topic_name = parse_subscription_queue_name(record.owner)
        queue = SharedQueue(record, self._queues, self._kernel)
        found = DurableSubscription(topic_name, name, queue)
        self._by_name[record.owner] = self._by_party[record.party] = found
        self._names.take(record.owner, Owner("subscription", record.owner))
        self._of_topic[topic_name] += 1
        self._log.keep_all(topic_name.encode(), True)
        return found

    def _open(self, subscription: DurableSubscription, now_us: int) -> None:
        """The queue is attached and routed to; what is beyond its quota is cut off first."""
        found = subscription.queue.within_quota(now_us)
        record = subscription.queue.record
        if found.subscriptions != record.reads:
            subscription.queue.put(replace(record, reads=found.subscriptions), now_us)
        queue = subscription.queue.open(found, found.party, self._log.end_offset())
        routed = Subscription(
            topic_filter=subscription.topic_name,
            qos=QOS_MAXIMUM,
            from_offset=0,
            retain_as_published=True,
        )
        self._routes.subscribe(queue, GROUP_CONNECTION, found.party, [routed])
