"""Consumers: who takes from which subscription.

Owns: that a consumer is known to its subscription, to the kernel's codec and to its deliveries, or
to none of them. Never: sees a message.

Invariants:
1. SUCCESS to SUBSCRIBE leaves when the subscription and the topic are durable, and no message
   before it: a consumer begins without permits.
2. A subscription that is Exclusive has one consumer, from the moment that it is asked for.
3. What has to be counted first, because a queue at rest has a limit, is counted in pieces; the
   client's next commands wait for that.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.chores import Chores
from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, ConnectedConsumer, DurableSubscription
from holdfast.broker.pulsar.rights import Rights
from holdfast.broker.pulsar.subscriptions import Subscriptions
from holdfast.broker.pulsar.topics import Topics
from holdfast.core.limits import (
    PULSAR_CONSUMERS_PER_CONNECTION_MAXIMUM,
    PULSAR_CONSUMERS_PER_SUBSCRIPTION_MAXIMUM,
)
from holdfast.protocols.pulsar.consumers import (
    Joining,
    Subscribing,
    plan_join,
    plan_subscribe,
    plan_unsubscribe,
)
from holdfast.protocols.pulsar.fields import (
    NO_REQUEST,
    CloseConsumer,
    Subscribe,
    SubType,
    Success,
    Unsubscribe,
)
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import log_name


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a consumer comes in."""

    topic_name: str
    subscription: DurableSubscription | None
    """`None`: it is to be made."""
    joining: Joining


class Consumers:
    """All of them."""

    def __init__(
        self,
        ground: Ground,
        rights: Rights,
        topics: Topics,
        subscriptions: Subscriptions,
        answers: Answers,
        chores: Chores,
    ) -> None:
        kernel = ground.kernel
        self._log = kernel.log
        self._inbox = kernel.pulsar_inbox
        self._deliveries = kernel.deliveries
        self._outboxes = kernel.pulsar_outboxes
        self._now_us = ground.world.now_us
        self._rights = rights
        self._topics = topics
        self._subscriptions = subscriptions
        self._answers = answers
        self._chores = chores

    def subscribe(
        self, client: Client, command: Subscribe, now_us: int, done: Callable[[], None]
    ) -> None:
        """Takes a SUBSCRIBE; `done` is called when the next command can be taken."""
        asked = plan_subscribe(command, namespaces=self._rights.namespaces)
        place = asked if isinstance(asked, Refusal) else self._place(client, asked)
        if isinstance(asked, Refusal) or isinstance(place, Refusal):
            refusal = asked if isinstance(asked, Refusal) else place
            assert isinstance(refusal, Refusal)
            self._answers.refuse(client.connection, command, refusal, now_us)
            done()
            return
        if place.joining is Joining.AGAIN:
            self._accept(client, command.request_id)
            done()
            return
        consumer = self._add(client, asked, place, now_us)

        def counted(_nothing: None) -> None:
            # It may have gone in the meantime.
            if client.consumers.get(asked.consumer_id) is consumer:
                self._attach(consumer, self._now_us())
                self._accept(client, command.request_id)
                done()

        self._chores.start(self._subscriptions.prepare(consumer.subscription, now_us), counted)

    def close(self, client: Client, command: CloseConsumer, now_us: int) -> None:
        """Takes a CLOSE_CONSUMER; one that is not there is closed already."""
        self._remove(client, command.consumer_id, now_us)
        # What it has acknowledged stays so, if it was the last one.
        self._accept(client, command.request_id)

    def unsubscribe(self, client: Client, command: Unsubscribe, now_us: int) -> None:
        """Takes an UNSUBSCRIBE: the subscription ends, and with it its consumers."""
        consumer = client.consumers.get(command.consumer_id)
        others = [] if consumer is None else consumer.subscription.consumers
        refusal = plan_unsubscribe(
            command, is_consumer=consumer is not None, other_consumers=max(len(others) - 1, 0)
        )
        if refusal is not None:
            self._answers.refuse(client.connection, command, refusal, now_us)
            return
        assert consumer is not None, "planning has refused it"
        for other in list(others):
            self._remove(other.client, other.asked.consumer_id, now_us)
            if other is not consumer:
                self._send_away(other)
        position = self._subscriptions.end(consumer.subscription, now_us)
        self._answers.hold(client.handle, Success(request_id=command.request_id), position)

    def end_all(self, client: Client, now_us: int) -> None:
        """The client is gone; what its consumers had goes back."""
        for consumer_id in list(client.consumers):
            self._remove(client, consumer_id, now_us)

    def end_denied(self, client: Client, now_us: int) -> int:
        """Those that are not allowed any more are told to come again, and are refused then; returns
        how many they were."""
        denied = [
            it
            for it in client.consumers.values()
            if it.asked.topic.namespace not in self._rights.namespaces
            or not self._rights.may_consume(client, it.subscription.topic_name)
        ]
        for consumer in denied:
            self._remove(client, consumer.asked.consumer_id, now_us)
            self._send_away(consumer)
        return len(denied)

    def _place(self, client: Client, asked: Subscribing) -> _Place | Refusal:
        topic_name = log_name(asked.topic)
        if not self._rights.may_consume(client, topic_name):
            return Refusal.NOT_AUTHORIZED
        if not asked.creates_topic and not self._topics.is_there(asked.topic):
            return Refusal.TOPIC_UNKNOWN
        subscription = self._subscriptions.find(topic_name, asked.subscription)
        of_id = client.consumers.get(asked.consumer_id)
        joining = plan_join(
            asked,
            of_id=None if of_id is None else of_id.asked,
            members=None if subscription is None else subscription.sub_type,
        )
        if isinstance(joining, Refusal):
            return joining
        if joining is Joining.NEW:
            members = 0 if subscription is None else len(subscription.consumers)
            if (
                len(client.consumers) >= PULSAR_CONSUMERS_PER_CONNECTION_MAXIMUM
                or members >= PULSAR_CONSUMERS_PER_SUBSCRIPTION_MAXIMUM
            ):
                return Refusal.TOO_MANY_CONSUMERS
            if subscription is None and not self._subscriptions.has_room():
                return Refusal.TOO_MANY_SUBSCRIPTIONS
        return _Place(topic_name, subscription, joining)

    def _add(
        self, client: Client, asked: Subscribing, place: _Place, now_us: int
    ) -> ConnectedConsumer:
        subscription = place.subscription or self._subscriptions.make(
            place.topic_name, asked.subscription, asked.initial_position, now_us
        )
        consumer = ConnectedConsumer(client, asked, subscription)
        subscription.consumers.append(consumer)
        client.consumers[asked.consumer_id] = consumer
        return consumer

    def _attach(self, consumer: ConnectedConsumer, now_us: int) -> None:
        handle, number = consumer.client.handle, consumer.asked.consumer_id
        ledger = self._topics.declare(consumer.subscription.topic_name, now_us)
        receiver = consumer.receiver = self._deliveries.attach_consumer(handle)
        is_shared = consumer.asked.sub_type is SubType.SHARED
        self._inbox.add_consumer(
            handle, number, receiver=receiver, ledger=ledger, is_shared=is_shared
        )
        self._outboxes.add_consumer(handle, number, receiver)
        self._subscriptions.join(consumer, now_us)

    def _accept(self, client: Client, request_id: int) -> None:
        # What was asked for first may still be on its way to the disk.
        position = self._log.end_position()
        self._answers.hold(client.handle, Success(request_id=request_id), position)

    def _remove(self, client: Client, consumer_id: int, now_us: int) -> None:
        consumer = client.consumers.pop(consumer_id, None)
        if consumer is None:
            return
        if consumer.receiver is not None:
            self._inbox.remove_consumer(client.handle, consumer_id)
            self._outboxes.remove_consumer(client.handle, consumer.receiver)
            self._deliveries.detach_consumer(consumer.receiver)
        self._subscriptions.leave(consumer, now_us)

    def _send_away(self, consumer: ConnectedConsumer) -> None:
        told = CloseConsumer(consumer_id=consumer.asked.consumer_id, request_id=NO_REQUEST)
        self._answers.hold(consumer.client.handle, told)
