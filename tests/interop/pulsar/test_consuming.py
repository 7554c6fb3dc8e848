"""Subscriptions: where they begin, who takes from them, and what comes again."""

import pytest

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import OfficialConsumer, Received

QUICKLY = {"negative_ack_redelivery_delay_ms": 100}


def numbers(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def give_back(consumer: OfficialConsumer, messages: list[Received]) -> None:
    for message in messages:
        consumer.give_back(message)


@pytest.mark.accepts("S4.5", "S4.181")
def test_a_new_subscription_begins_where_it_was_asked_to(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    producer = pulsar.producer(prefix)
    producer.send_many(numbers(0, 3))
    earliest = pulsar.consumer(prefix, "all", position="Earliest")
    latest = pulsar.consumer(prefix, "new", position="Latest")
    producer.send_many(numbers(3, 5))
    assert earliest.take(5) == numbers(0, 5)
    assert latest.take(2) == numbers(3, 5)


@pytest.mark.accepts("S4.1", "S4.175", "S4.176", "S4.221")
def test_what_comes_while_nobody_consumes_is_kept(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(prefix)
    producer.send(b"0")
    assert consumer.take(1) == [b"0"]
    consumer.close()
    producer.send_many(numbers(1, 4))
    again = pulsar.consumer(prefix, "mine", position="Latest")
    assert again.take(3) == numbers(1, 4)
    again.receives_nothing()


@pytest.mark.accepts("S4.2", "S4.39")
def test_what_is_not_acknowledged_comes_again_when_its_consumer_has_gone(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    pulsar.producer(prefix).send_many(numbers(0, 4))
    taken = consumer.receive_many(4)
    consumer.acknowledge(taken[1])
    consumer.close()
    again = pulsar.consumer(prefix, "mine")
    assert again.take(3) == [b"0", b"2", b"3"]


@pytest.mark.accepts("S4.114", "S4.115")
def test_an_exclusive_subscription_has_one_consumer(client: MakeClient, prefix: str) -> None:
    consumer = client().consumer(prefix, "mine")
    with pytest.raises(AssertionError, match="ConsumerBusy"):
        client().consumer(prefix, "mine")
    consumer.close()
    client().consumer(prefix, "mine")


@pytest.mark.accepts("S4.113")
def test_a_consumer_of_another_type_is_refused(client: MakeClient, prefix: str) -> None:
    client().consumer(prefix, "mine", kind="Shared")
    with pytest.raises(AssertionError, match="ConsumerBusy"):
        client().consumer(prefix, "mine")


@pytest.mark.accepts("S4.111", "S4.112")
def test_a_subscription_takes_the_type_of_who_comes_first(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    pulsar.consumer(prefix, "mine").close()
    one = pulsar.consumer(prefix, "mine", kind="Shared")
    other = pulsar.consumer(prefix, "mine", kind="Shared")
    one.close()
    other.close()
    pulsar.consumer(prefix, "mine", kind="Exclusive")


@pytest.mark.accepts("S4.110", "S4.129")
def test_each_message_comes_once_to_each_subscription(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    one = pulsar.consumer(prefix, "shared", kind="Shared")
    other = client().consumer(prefix, "shared", kind="Shared")
    alone = pulsar.consumer(prefix, "alone")
    producer = pulsar.producer(prefix)
    producer.send_many(numbers(0, 10))
    # In turn, one to each.
    taken = one.take(5), other.take(5)
    assert sorted(taken[0] + taken[1]) == numbers(0, 10)
    assert alone.take(10) == numbers(0, 10)


@pytest.mark.accepts("S4.130", "S4.220")
def test_what_a_consumer_leaves_goes_to_the_others(client: MakeClient, prefix: str) -> None:
    one, other = client(), client()
    leaving = one.consumer(prefix, "mine", kind="Shared")
    one.producer(prefix).send_many(numbers(0, 6))
    assert payloads(leaving.receive_many(6)) == numbers(0, 6)
    staying = other.consumer(prefix, "mine", kind="Shared")
    leaving.close()
    taken = staying.receive_many(6)
    assert payloads(taken) == numbers(0, 6)
    # Nobody had wanted any of it again.
    assert {message.redeliveries for message in taken} == {0}


@pytest.mark.accepts("S4.3", "S4.29", "S4.24", "S4.28")
def test_what_is_given_back_comes_again_and_tells_how_often(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY)
    pulsar.producer(prefix).send_many(numbers(0, 4))
    taken = consumer.receive_many(4)
    consumer.acknowledge(taken[0])
    consumer.acknowledge(taken[2])
    for times in (1, 2):
        give_back(consumer, [taken[1], taken[3]])
        again = consumer.receive_many(2)
        assert payloads(again) == [b"1", b"3"]
        assert [message.redeliveries for message in again] == [times, times]
        taken[1], taken[3] = again
    consumer.acknowledge(taken[1])
    consumer.acknowledge(taken[3])
    consumer.receives_nothing()


@pytest.mark.accepts("S4.35")
def test_what_is_given_back_comes_again_after_its_delay(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(
        prefix, "mine", kind="Shared", negative_ack_redelivery_delay_ms=2_000
    )
    pulsar.producer(prefix).send(b"x")
    consumer.give_back(consumer.receive())
    consumer.receives_nothing()
    assert consumer.take(1) == [b"x"]


@pytest.mark.accepts("S4.34")
def test_what_is_given_back_does_not_come_again_at_once(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared")
    pulsar.producer(prefix).send(b"x")
    consumer.give_back(consumer.receive())
    consumer.receives_nothing()
    assert pulsar.defaults()["negative_ack_redelivery_delay_ms"] == 60_000


@pytest.mark.accepts("S4.38", "S4.81", "S4.82")
def test_a_batch_of_which_one_message_is_given_back_comes_again_as_a_whole(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY)
    producer = pulsar.producer(
        prefix, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5_000
    )
    producer.send_many(numbers(0, 5))
    taken = consumer.receive_many(5)
    for message in taken[:4]:
        consumer.acknowledge(message)
    consumer.give_back(taken[4])
    again = consumer.receive_many(5)
    assert payloads(again) == numbers(0, 5)
    for message in again:
        consumer.acknowledge(message)
    consumer.close()
    pulsar.consumer(prefix, "mine", kind="Shared").receives_nothing()


@pytest.mark.accepts("S4.40", "S4.44")
def test_what_is_not_acknowledged_in_time_comes_again(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    # The library takes no shorter time.
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", unacked_messages_timeout_ms=10_000)
    producer = pulsar.producer(
        prefix, batching_enabled=True, batching_max_messages=3, batching_max_publish_delay_ms=5_000
    )
    producer.send_many(numbers(0, 3))
    assert payloads(consumer.receive_many(3)) == numbers(0, 3)
    assert payloads(consumer.receive_many(3)) == numbers(0, 3)


@pytest.mark.accepts("S4.25")
def test_all_up_to_a_message_is_acknowledged_with_it(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    pulsar.producer(prefix).send_many(numbers(0, 6))
    taken = consumer.receive_many(6)
    consumer.acknowledge_up_to(taken[3])
    consumer.close()
    again = pulsar.consumer(prefix, "mine")
    assert again.take(2) == numbers(4, 6)
    again.receives_nothing()


@pytest.mark.accepts("S4.26", "S4.131")
def test_a_shared_subscription_has_nothing_acknowledged_up_to_a_message(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared")
    pulsar.producer(prefix).send(b"x")
    with pytest.raises(AssertionError, match="CumulativeAcknowledgementNotAllowed"):
        consumer.acknowledge_up_to(consumer.receive())


def test_a_subscription_that_was_ended_begins_anew(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(prefix)
    producer.send(b"before")
    consumer.unsubscribe()
    again = pulsar.consumer(prefix, "mine", position="Latest")
    producer.send(b"after")
    assert again.take(1) == [b"after"]


@pytest.mark.accepts("S4.182")
def test_a_subscription_has_a_name(client: MakeClient, prefix: str) -> None:
    with pytest.raises(AssertionError, match="InvalidConfiguration"):
        client().consumer(prefix, "")


@pytest.mark.accepts("S4.185")
def test_a_consumer_may_have_a_list_of_topics(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    topics = [f"{prefix}-{name}" for name in "abc"]
    consumer = pulsar.consumer(topics, "mine")
    for topic in topics:
        pulsar.producer(topic).send(topic.encode())
    assert sorted(consumer.take(3)) == [topic.encode() for topic in topics]


@pytest.mark.accepts("S4.186")
def test_a_consumer_has_one_topic_unless_it_asks_for_more(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}-a", "mine")
    pulsar.producer(f"{prefix}-ab").send(b"other")
    pulsar.producer(f"{prefix}-a").send(b"own")
    assert consumer.take(1) == [b"own"]
    consumer.receives_nothing()


def test_a_pattern_takes_the_topics_that_pulsar_clients_know(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    for name in ("one", "two"):
        pulsar.producer(f"{prefix}-{name}").send(name.encode())
    pulsar.producer(f"other-{prefix}").send(b"other")
    pattern = {"pattern": f"persistent://public/default/{prefix}-.*"}
    consumer = pulsar.consumer(pattern, "mine", position="Earliest")
    assert sorted(consumer.take(2)) == [b"one", b"two"]
    consumer.receives_nothing()


@pytest.mark.accepts("S4.190")
def test_order_holds_within_a_topic(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    producer = pulsar.producer(prefix, batching_enabled=True, block_if_queue_full=True)
    producer.send_many(numbers(0, 5_000))
    assert consumer.take(5_000) == numbers(0, 5_000)


def test_a_client_that_goes_leaves_its_subscription_free(client: MakeClient, prefix: str) -> None:
    one = client()
    one.consumer(prefix, "mine")
    one.producer(prefix, producer_name="only")
    one.disconnect()
    other = client()
    other.consumer(prefix, "mine")
    other.producer(prefix, producer_name="only")
