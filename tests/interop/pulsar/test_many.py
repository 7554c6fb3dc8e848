"""Pulsar's own client where there is much: messages held, producers, a batch; or no queue."""

import pytest

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import Received
from tests.interop.seen import Seen
from tests.interop.wire import Wire
from tests.process import BrokerProcess

HELD = 1_200
"""More than the library asks for in advance, so that it has asked again."""
ON_ONE_CONNECTION = 200
"""Producers, and as many consumers."""
LARGE_BATCH = 3_000
"""More than the library asks for in advance, and than it puts together unless it is told to."""


def numbers(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def test_what_a_consumer_that_goes_has_held_comes_again_in_order_before_what_is_new(
    client: MakeClient, prefix: str
) -> None:
    one, other = client(), client()
    leaving = one.consumer(prefix, "mine", kind="Shared", receiver_queue_size=HELD)
    producer = other.producer(prefix, max_pending_messages=HELD)
    producer.send_many(numbers(0, HELD))
    assert payloads(leaving.receive_many(HELD)) == numbers(0, HELD)
    one.disconnect()
    producer.send(str(HELD).encode())
    staying = other.consumer(prefix, "mine", kind="Shared", receiver_queue_size=10)
    assert staying.take(HELD + 1) == numbers(0, HELD + 1)


@pytest.mark.parametrize("size", [0, 1])
def test_a_consumer_may_ask_for_one_message_at_a_time(
    client: MakeClient, prefix: str, size: int
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", receiver_queue_size=size)
    pulsar.producer(prefix).send_many(numbers(0, 100))
    for payload in numbers(0, 100):
        # Without a queue the library has no receiving that ends by itself.
        taken = consumer.receive(None)
        assert taken.payload == payload
        consumer.acknowledge(taken)


def test_a_batch_comes_whole_to_a_consumer_with_a_smaller_queue(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", receiver_queue_size=10)
    sent = pulsar.producer(
        prefix,
        batching_enabled=True,
        batching_max_messages=LARGE_BATCH,
        batching_max_allowed_size_in_bytes=4_000_000,
        batching_max_publish_delay_ms=10_000,
        max_pending_messages=2 * LARGE_BATCH,
    ).send_many(numbers(0, LARGE_BATCH))
    assert {entry for _, entry, _ in sent} == {0}
    taken = consumer.receive_many(LARGE_BATCH)
    assert payloads(taken) == numbers(0, LARGE_BATCH)
    consumer.acknowledge_up_to(taken[-1])
    consumer.close()
    pulsar.consumer(prefix, "mine").receives_nothing()


def test_one_connection_has_many_producers_and_consumers(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    topics = [f"{prefix}-{number}" for number in range(ON_ONE_CONNECTION)]
    consumers = [pulsar.consumer(topic, "mine") for topic in topics]
    producers = [pulsar.producer(topic) for topic in topics]
    for topic, producer in zip(topics, producers, strict=True):
        producer.send(topic.encode())
    assert [consumer.take(1) for consumer in consumers] == [[topic.encode()] for topic in topics]


def test_a_subscription_that_is_ended_leaves_its_backlog(
    shared_broker: Seen, client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    pulsar.producer(prefix).send_many(numbers(0, 1_000))
    consumer.receive()
    consumer.unsubscribe()
    queues = shared_broker.get("/v1/queues")["queues"]
    assert f"subscription/mine/{prefix}" not in {row["queue_name"] for row in queues}
    again = pulsar.consumer(prefix, "mine", position="Earliest")
    assert again.take(1_000) == numbers(0, 1_000)


def test_a_retained_message_comes_once_from_the_earliest_position_and_never_from_the_latest(
    shared_broker: BrokerProcess, client: MakeClient, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        wire.send(
            "publish", **(wire.publish_fields(prefix, b"kept", 1, 1, False) | {"retain": True})
        )
        assert wire.receive("puback")["packet_identifier"] == 1
    pulsar = client()
    latest = pulsar.consumer(prefix, "latest")
    earliest = pulsar.consumer(prefix, "earliest", position="Earliest")
    pulsar.producer(prefix).send(b"new")
    assert earliest.take(2) == [b"kept", b"new"]
    assert latest.take(1) == [b"new"]
