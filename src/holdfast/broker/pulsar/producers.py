"""Producers: who produces to which topic, under which name.

Owns: the table of producers, and that the kernel knows them. Never: sees an entry.

Invariants:
1. A topic has one producer of a name at a time.
2. PRODUCER_SUCCESS leaves when the topic and the initial subscription are durable.
"""

from typing import Final

from holdfast.broker.delivery.parties import Parties
from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, ConnectedProducer
from holdfast.broker.pulsar.rights import Rights
from holdfast.broker.pulsar.subscriptions import Subscriptions
from holdfast.broker.pulsar.topics import Topics
from holdfast.core.limits import PULSAR_PRODUCERS_PER_CONNECTION_MAXIMUM
from holdfast.kernel import key_slot
from holdfast.protocols.pulsar.fields import (
    NO_REQUEST,
    CloseProducer,
    InitialPosition,
    Producer,
    Success,
)
from holdfast.protocols.pulsar.producers import (
    ENTROPY_BYTES,
    Entry,
    Producing,
    plan_entry,
    plan_producer,
    producer_success,
)
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import log_name

MOST: Final = PULSAR_PRODUCERS_PER_CONNECTION_MAXIMUM


class Producers:
    """All of them."""

    def __init__(
        self,
        ground: Ground,
        parties: Parties,
        rights: Rights,
        topics: Topics,
        subscriptions: Subscriptions,
        answers: Answers,
    ) -> None:
        self._log = ground.kernel.log
        self._inbox = ground.kernel.pulsar_inbox
        self._entropy = ground.world.entropy
        self._parties = parties
        self._rights = rights
        self._topics = topics
        self._subscriptions = subscriptions
        self._answers = answers
        self._by_name: dict[tuple[str, str], ConnectedProducer] = {}
        """By topic and name."""

    def __len__(self) -> int:
        return len(self._by_name)

    def make(self, client: Client, command: Producer, now_us: int) -> None:
        """Takes a PRODUCER."""
        asked = plan_producer(
            command,
            namespaces=self._rights.namespaces,
            entropy=self._entropy(ENTROPY_BYTES),
        )
        entry = asked if isinstance(asked, Refusal) else self._entry(client, asked)
        if isinstance(asked, Refusal) or isinstance(entry, Refusal):
            refusal = asked if isinstance(asked, Refusal) else entry
            assert isinstance(refusal, Refusal)
            self._answers.refuse(client.connection, command, refusal, now_us)
            return
        if entry is Entry.AGAIN:
            asked = client.producers[asked.producer_id].asked
        else:
            self._add(client, asked, now_us)
        # What was asked for first may still be on its way to the disk.
        position = self._log.end_position()
        self._answers.hold(client.handle, producer_success(command.request_id, asked), position)

    def close(self, client: Client, command: CloseProducer) -> None:
        """Takes a CLOSE_PRODUCER; one that is not there is closed already."""
        self._remove(client, command.producer_id)
        self._answers.send(client.handle, Success(request_id=command.request_id))

    def end_all(self, client: Client) -> None:
        """The client is gone."""
        for producer_id in list(client.producers):
            self._remove(client, producer_id)

    def end_denied(self, client: Client) -> int:
        """Those that are not allowed any more are told to come again, and are refused then; returns
        how many they were."""
        denied = [
            number
            for number, it in client.producers.items()
            if it.asked.topic.namespace not in self._rights.namespaces
            or not self._rights.may_produce(client, it.topic_name)
        ]
        for number in denied:
            self._remove(client, number)
            told = CloseProducer(producer_id=number, request_id=NO_REQUEST)
            self._answers.hold(client.handle, told)
        return len(denied)

    def _entry(self, client: Client, asked: Producing) -> Entry | Refusal:
        topic_name = log_name(asked.topic)
        if not self._rights.may_produce(client, topic_name):
            return Refusal.NOT_AUTHORIZED
        initial = asked.initial_subscription
        if initial is not None:
            if not self._rights.may_consume(client, topic_name):
                return Refusal.NOT_AUTHORIZED
            is_there = self._subscriptions.find(topic_name, initial) is not None
            if not is_there and not self._subscriptions.has_room():
                return Refusal.TOO_MANY_SUBSCRIPTIONS
        of_id = client.producers.get(asked.producer_id)
        of_name = self._by_name.get((topic_name, asked.name))
        if of_id is None and len(client.producers) >= MOST:
            return Refusal.TOO_MANY_PRODUCERS
        return plan_entry(
            asked,
            of_id=None if of_id is None else of_id.asked,
            of_name=None if of_name is None else of_name.asked,
            same_connection=of_name is not None and of_name.client is client,
        )

    def _add(self, client: Client, asked: Producing, now_us: int) -> None:
        topic_name = log_name(asked.topic)
        former = self._by_name.get((topic_name, asked.name))
        if former is not None:
            self._remove(former.client, former.asked.producer_id)
        self._remove(client, asked.producer_id)
        self._topics.declare(topic_name, now_us)
        initial = asked.initial_subscription
        if initial is not None and self._subscriptions.find(topic_name, initial) is None:
            self._subscriptions.make(topic_name, initial, InitialPosition.EARLIEST, now_us)
        self._inbox.add_producer(
            client.handle,
            asked.producer_id,
            topic_name=topic_name.encode(),
            party=self._parties.transient(),
            key_slot=key_slot(asked.name.encode()),
        )
        producer = ConnectedProducer(client, asked)
        client.producers[asked.producer_id] = producer
        self._by_name[topic_name, asked.name] = producer

    def _remove(self, client: Client, producer_id: int) -> None:
        producer = client.producers.pop(producer_id, None)
        if producer is not None:
            del self._by_name[producer.topic_name, producer.asked.name]
            self._inbox.remove_producer(client.handle, producer_id)
