"""Publishing and subscribing with the Paho client: QoS, wildcards, order, what passes through."""

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import payloads


@pytest.mark.accepts("S2.18")
@pytest.mark.parametrize("subscribed", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_arrives_at_the_lower_qos(
    device: MakeDevice, prefix: str, version: int, published: int, subscribed: int
) -> None:
    """A clean session gets every QoS while it is connected."""
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    assert subscriber.subscribe(f"{prefix}/a", subscribed) == [subscribed]
    publisher.publish(f"{prefix}/a", b"hello", published)
    message = subscriber.receive()
    assert (message.topic, message.payload) == (f"{prefix}/a", b"hello")
    assert message.qos == min(published, subscribed)
    assert not message.retain
    assert not message.dup
    assert subscriber.all_received() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.accepts("S0.17")
def test_messages_arrive_in_the_order_of_publishing(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    subscriber.subscribe(f"{prefix}/#", qos)
    sent = [b"%d" % number for number in range(300)]
    publisher.publish_all(f"{prefix}/a", sent, qos)
    assert payloads(subscriber.receive_many(len(sent))) == sent


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("{}/+/c", ["{}/a/c", "{}//c"], ["{}/a/b/c", "{}/c", "{}/a/C"]),
        ("{}/#", ["{}", "{}/a", "{}/a/b", "{}/"], ["{}x"]),
        ("{}/+", ["{}/a", "{}/"], ["{}", "{}/a/b"]),
        ("+/{}/+/#", ["x/{}/a", "x/{}/a/b", "/{}/a"], ["x/{}", "{}/a/b"]),
        ("{}/\N{GREEK SMALL LETTER PI}", ["{}/\N{GREEK SMALL LETTER PI}"], ["{}/p"]),
    ],
)
def test_wildcards_match_as_the_standard_says(
    device: MakeDevice, prefix: str, pattern: str, matching: list[str], other: list[str]
) -> None:
    both = device(prefix, clean_start=True)
    both.subscribe(pattern.format(prefix))
    for topic in [*other, *matching]:
        both.publish(topic.format(prefix))
    received = [message.topic for message in both.all_received()]
    assert received == [topic.format(prefix) for topic in matching]


def test_overlapping_subscriptions_deliver_once_at_the_highest_qos(
    device: MakeDevice, prefix: str
) -> None:
    both = device(prefix, clean_start=True)
    both.subscribe(f"{prefix}/#", 0, identifier=10)
    both.subscribe(f"{prefix}/a", 2, identifier=20)
    both.publish(f"{prefix}/a", b"once", 2)
    (message,) = both.all_received()
    assert message.qos == 2
    assert sorted(message.properties.SubscriptionIdentifier) == [10, 20]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_an_application_says_passes_through_unchanged(
    device: MakeDevice, prefix: str, qos: int
) -> None:
    both = device(prefix, clean_start=True)
    both.subscribe(f"{prefix}/a", qos)
    pairs = [("b", "2"), ("a", "1"), ("b", "3"), ("", ""), ("\N{SNOWMAN}", "x" * 500)]
    both.publish(
        f"{prefix}/a",
        b"\x00\xff",
        qos,
        UserProperty=pairs,
        ContentType="application/cbor",
        PayloadFormatIndicator=0,
        ResponseTopic=f"{prefix}/answer",
        CorrelationData=b"\x00\x01\xfe",
    )
    message = both.receive()
    assert message.payload == b"\x00\xff"
    assert message.properties.UserProperty == pairs
    assert message.properties.ContentType == "application/cbor"
    assert message.properties.ResponseTopic == f"{prefix}/answer"
    assert message.properties.CorrelationData == b"\x00\x01\xfe"


def test_no_local_keeps_back_ones_own_messages(device: MakeDevice, prefix: str) -> None:
    one, other = device(f"{prefix}1", clean_start=True), device(f"{prefix}2", clean_start=True)
    one.subscribe(f"{prefix}/a", 1, noLocal=True)
    other.subscribe(f"{prefix}/a", 1)
    one.publish(f"{prefix}/a", b"mine")
    other.publish(f"{prefix}/a", b"theirs")
    assert payloads(one.all_received()) == [b"theirs"]
    assert payloads(other.all_received()) == [b"mine", b"theirs"]


def test_unsubscribing_ends_the_flow_and_says_whether_there_was_one(
    device: MakeDevice, prefix: str
) -> None:
    both = device(prefix, clean_start=True)
    both.subscribe(f"{prefix}/a")
    both.publish(f"{prefix}/a", b"before")
    assert both.unsubscribe(f"{prefix}/a") == [0x00]
    assert both.unsubscribe(f"{prefix}/a") == [0x11]
    both.publish(f"{prefix}/a", b"after")
    assert payloads(both.all_received()) == [b"before"]


def test_unsubscribing_from_one_of_two_leaves_the_other(
    device: MakeDevice, prefix: str, version: int
) -> None:
    both = device(prefix, version=version, clean_start=True)
    both.subscribe(f"{prefix}/a")
    both.subscribe(f"{prefix}/#")
    both.unsubscribe(f"{prefix}/a")
    both.publish(f"{prefix}/a", b"still")
    assert payloads(both.all_received()) == [b"still"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_large_payload_arrives_whole(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    subscriber.subscribe(f"{prefix}/a", qos)
    payload = bytes(range(256)) * 2_000
    publisher.publish(f"{prefix}/a", payload, qos)
    assert subscriber.receive().payload == payload


@pytest.mark.accepts("S2.15", "S2.16", "S2.17", "S2.59")
def test_a_clean_session_starts_fresh_and_leaves_nothing(
    device: MakeDevice, prefix: str, version: int
) -> None:
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    subscriber.subscribe(f"{prefix}/a", 2)
    subscriber.disconnect()
    publisher.publish(f"{prefix}/a", b"while away", 2)
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    assert not subscriber.session_present
    publisher.publish(f"{prefix}/a", b"not subscribed any more", 2)
    assert subscriber.all_received() == []
