"""PUBLISH: what is passed on and how, which topic names and aliases are taken, which are not."""

from typing import Any

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Property
from tests.conformance.peer import Peer

MALFORMED, PROTOCOL_ERROR, NAME_INVALID, ALIAS_INVALID = 0x81, 0x82, 0x90, 0x94
NOT_AUTHORIZED = 0x87
NO_LOCAL, AS_PUBLISHED = 0x04, 0x08


def pair(peer: Join, name: str, version: int, qos: int = 0) -> tuple[Peer, Peer]:
    """A publisher, and a subscriber to everything below `name`."""
    publisher, subscriber = peer(version), peer(version)
    publisher.connect(f"{name}p")
    subscriber.connect(f"{name}s")
    assert subscriber.subscribe(f"{name}/#", qos) == qos
    return publisher, subscriber


@pytest.mark.proves(
    "MQTT5-3.3.4-1",
    "MQTT5-3.8.4-8",
    "MQTT5-2.2.1-2",
    "MQTT5-2.2.1-4",
    "MQTT5-2.2.1-5",
    "MQTT5-3.3.2-3",
    "MQTT5-4.3.1-1",
    "MQTT311-3.3.4-1",
    "MQTT311-3.8.4-6",
    "MQTT311-2.3.1-1",
    "MQTT311-2.3.1-5",
    "MQTT311-2.3.1-6",
    "MQTT311-3.3.2-3",
    "MQTT311-4.3.1-1",
)
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_at_the_lower_of_both_qos(
    peer: Join, name: str, version: int, published: int, granted: int
) -> None:
    publisher, subscriber = pair(peer, name, version, granted)
    publisher.publish(f"{name}/a", b"x", qos=published)
    found = subscriber.message(f"{name}/a", b"x")
    assert found.qos == min(published, granted)
    assert (found.dup, found.retain) == (False, False)
    publisher.quiet()
    subscriber.quiet()


@pytest.mark.parametrize("published", [5, 4, 3])
def test_messages_pass_between_versions(
    peer: Join, name: str, version: int, published: int
) -> None:
    publisher, subscriber = peer(published), peer(version)
    publisher.connect(f"{name}p")
    subscriber.connect(f"{name}s")
    subscriber.subscribe(name, 2)
    for qos in (0, 1, 2):
        publisher.publish(name, bytes([qos]), qos=qos)
        subscriber.message(name, bytes([qos]))


@pytest.mark.proves("MQTT5-3.3.1-3", "MQTT311-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publishers_dup_is_not_passed_on(peer: Join, name: str, version: int, qos: int) -> None:
    publisher, subscriber = pair(peer, name, version, qos)
    publisher.send(
        packets.publish(f"{name}/a", b"x", version=version, qos=qos, identifier=9, dup=True)
    )
    assert subscriber.message().dup is False


@pytest.mark.proves(
    "MQTT5-3.3.1-2", "MQTT5-3.3.1-4", "MQTT311-3.3.1-2", "MQTT311-3.3.1-4", "MQTT5-4.13.1-1"
)
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x38, 0x39])
def test_qos_3_and_dup_at_qos_0_are_malformed(
    peer: Join, name: str, version: int, first: int
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.packet(first, packets.publish("a", b"xyz", qos=1, identifier=1)[2:]))
    client.expelled(MALFORMED)


@pytest.mark.proves("MQTT5-2.2.1-3", "MQTT311-2.3.1-1")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda v: packets.publish("a", qos=1, identifier=0, version=v), id="QoS 1"),
        pytest.param(lambda v: packets.publish("a", qos=2, identifier=0, version=v), id="QoS 2"),
        pytest.param(lambda v: packets.subscribe(0, ("a", 0), version=v), id="SUBSCRIBE"),
        pytest.param(lambda v: packets.unsubscribe(0, "a", version=v), id="UNSUBSCRIBE"),
    ],
)
def test_packet_identifier_0_ends_the_connection(
    peer: Join, name: str, version: int, data: Any
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(data(version))
    client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves(
    "MQTT5-3.3.2-1",
    "MQTT5-3.3.2-2",
    "MQTT5-4.7.0-1",
    "MQTT5-4.7.3-1",
    "MQTT5-4.7.3-2",
    "MQTT5-1.5.4-1",
    "MQTT5-1.5.4-2",
    "MQTT311-3.3.2-1",
    "MQTT311-3.3.2-2",
    "MQTT311-4.7.1-1",
    "MQTT311-4.7.3-1",
    "MQTT311-4.7.3-2",
    "MQTT311-1.5.3-1",
    "MQTT311-1.5.3-2",
)
@pytest.mark.parametrize(
    ("topic", "reason_codes"),
    [
        (b"", {PROTOCOL_ERROR}),
        (b"a/+", {NAME_INVALID}),
        (b"+", {NAME_INVALID}),
        (b"a+b", {NAME_INVALID}),
        (b"#", {NAME_INVALID}),
        (b"a/#", {NAME_INVALID}),
        (b"a\0b", {MALFORMED}),
        (b"\xff", {MALFORMED}),
        (b"a\xed\xa0\x80", {MALFORMED}),
        (b"\xc0\xaf", {MALFORMED}),
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_no_topic_name_ends_the_connection(
    peer: Join, name: str, version: int, topic: bytes, reason_codes: set[int], qos: int
) -> None:
    client = peer(version)
    client.connect(name)
    identifier = 1 if qos else None
    client.send(packets.publish(topic, version=version, qos=qos, identifier=identifier))
    client.expelled(*reason_codes)


@pytest.mark.proves(
    "MQTT5-4.7.3-3", "MQTT5-4.7.3-4", "MQTT5-1.5.4-3", "MQTT311-4.7.3-3", "MQTT311-4.7.3-4"
)
@pytest.mark.proves("MQTT311-1.5.3-3")
@pytest.mark.parametrize(
    "topic",
    ["/", "//", "a//b", "/a", "a/", " ", "Ä", "\ufeffa", "\U0002a6d4", "e\u0301", "\u00e9", "a b"],
)
def test_names_are_taken_as_they_are(peer: Join, name: str, version: int, topic: str) -> None:
    publisher, subscriber = peer(version), peer(version)
    publisher.connect(f"{name}p")
    subscriber.connect(f"{name}s")
    subscriber.subscribe(name + topic, 0)
    # Nothing else that looks the same to people matches.
    for other in (topic.upper() + "x", topic.strip("/ ") + "x", topic.replace("\ufeff", "") + "x"):
        publisher.publish(name + other, b"other")
    publisher.publish(name + topic, b"this")
    assert subscriber.message(name + topic, b"this")
    publisher.publish(name + "e\u0301", b"two code points")
    publisher.publish(name + "\u00e9", b"one code point")
    if topic in {"e\u0301", "\u00e9"}:
        subscriber.message(name + topic)
    subscriber.quiet()


@pytest.mark.proves("MQTT5-4.7.3-3", "MQTT311-4.7.3-3")
def test_a_topic_name_may_be_as_long_as_text_can_be(peer: Join, name: str, version: int) -> None:
    topic = name + "x" * (65_535 - len(name))
    publisher, subscriber = peer(version), peer(version)
    publisher.connect(f"{name}p")
    subscriber.connect(f"{name}s")
    assert subscriber.subscribe(topic, 1) == 1
    publisher.publish(topic, b"x", qos=1)
    subscriber.message(topic, b"x")


MESSAGE: list[Property] = [
    ("payload_format_indicator", 1),
    ("content_type", "text/plain; charset=utf-8 \ufeff"),
    ("response_topic", "answers/here"),
    ("correlation_data", bytes(range(256))),
    ("user_property", ("b", "1")),
    ("user_property", ("a", "2")),
    ("user_property", ("b", "1")),
    ("user_property", ("", "")),
]


@pytest.mark.proves(
    "MQTT5-3.3.2-4",
    "MQTT5-3.3.2-15",
    "MQTT5-3.3.2-16",
    "MQTT5-3.3.2-17",
    "MQTT5-3.3.2-18",
    "MQTT5-3.3.2-20",
    "MQTT5-1.5.4-3",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "items",
    [MESSAGE, MESSAGE[::-1], MESSAGE[:1], [("payload_format_indicator", 0)], [], MESSAGE[4:]],
    ids=lambda items: f"{len(items)} properties",
)
def test_properties_are_passed_on_as_they_came(
    peer: Join, name: str, qos: int, items: list[Property]
) -> None:
    publisher, subscriber = pair(peer, name, 5, qos)
    publisher.publish(f"{name}/a", "é".encode(), qos=qos, items=items)
    found = subscriber.message()
    assert sorted(found.properties, key=lambda item: item[0]) == sorted(
        items, key=lambda item: item[0]
    )
    assert found.every("user_property") == [v for k, v in items if k == "user_property"]


@pytest.mark.proves("MQTT5-3.3.2-17", "MQTT5-3.3.2-18")
def test_properties_are_passed_on_around_those_that_are_not(peer: Join, name: str) -> None:
    publisher, subscriber = pair(peer, name, 5)
    items: list[Property] = [
        ("user_property", ("a", "1")),
        ("topic_alias", 1),
        ("user_property", ("b", "2")),
        ("message_expiry_interval", 100),
        ("content_type", "x"),
    ]
    publisher.publish(f"{name}/a", b"x", items=items)
    found = subscriber.message()
    assert found.every("user_property") == [("a", "1"), ("b", "2")]
    assert found.property("content_type") == "x"
    assert found.property("message_expiry_interval") == 100
    assert found.property("topic_alias") is None


@pytest.mark.proves("MQTT5-3.3.2-4")
def test_retained_messages_keep_their_properties(peer: Join, name: str) -> None:
    publisher = peer()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=1, retain=True, items=MESSAGE)
    reader = peer()
    reader.connect(f"{name}s")
    reader.subscribe(name, 1)
    assert reader.message(name).properties == MESSAGE


@pytest.mark.proves(
    "MQTT5-3.3.2-13",
    "MQTT5-3.3.2-14",
    "MQTT5-3.3.2-19",
    "MQTT5-1.5.7-1",
    "MQTT5-3.3.4-6",
    "MQTT5-4.13.1-1",
)
@pytest.mark.parametrize(
    ("items", "reason_code"),
    [
        ([("response_topic", "a/+")], PROTOCOL_ERROR),
        ([("response_topic", "#")], PROTOCOL_ERROR),
        ([("response_topic", "")], PROTOCOL_ERROR),
        ([("response_topic", b"\xff")], MALFORMED),
        ([("content_type", b"\xff")], MALFORMED),
        ([("content_type", b"a\0")], MALFORMED),
        ([("user_property", (b"\xff", "v"))], MALFORMED),
        ([("user_property", ("k", b"\xff"))], MALFORMED),
        ([("user_property", ("k", b"\0"))], MALFORMED),
        ([("subscription_identifier", 1)], PROTOCOL_ERROR),
        ([("payload_format_indicator", 2)], PROTOCOL_ERROR),
        ([("payload_format_indicator", 1)] * 2, PROTOCOL_ERROR),
        ([("message_expiry_interval", 1)] * 2, PROTOCOL_ERROR),
        ([("content_type", "x")] * 2, PROTOCOL_ERROR),
        ([("response_topic", "x")] * 2, PROTOCOL_ERROR),
        ([("correlation_data", b"x")] * 2, PROTOCOL_ERROR),
        ([("topic_alias", 1)] * 2, PROTOCOL_ERROR),
        ([("session_expiry_interval", 1)], MALFORMED),
        ([("reason_string", "x")], MALFORMED),
    ],
    ids=str,
)
def test_wrong_properties_end_the_connection(
    peer: Join, name: str, items: list[Property], reason_code: int
) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.publish("a", items=items))
    client.expelled(reason_code)


def alias(number: int) -> list[Property]:
    return [("topic_alias", number)]


@pytest.mark.proves("MQTT5-3.3.2-12")
@pytest.mark.parametrize("number", [1, 2, 63, 64])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_alias_up_to_the_maximum_is_taken(
    peer: Join, name: str, number: int, qos: int
) -> None:
    publisher, subscriber = pair(peer, name, 5, 2)
    publisher.publish(f"{name}/a", b"1", qos=qos, items=alias(number))
    publisher.publish("", b"2", qos=qos, items=alias(number))
    publisher.publish(f"{name}/b", b"3", qos=qos, items=alias(number))
    publisher.publish("", b"4", qos=qos, items=alias(number))
    topics = [subscriber.message(payload=b"%d" % n).topic for n in (1, 2, 3, 4)]
    assert topics == [f"{name}/a", f"{name}/a", f"{name}/b", f"{name}/b"]


@pytest.mark.proves(
    "MQTT5-3.3.2-8", "MQTT5-3.3.2-9", "MQTT5-3.2.2-17", "MQTT5-4.13.1-1", "MQTT5-3.14.2-1"
)
@pytest.mark.parametrize("number", [0, 65, 65_535])
def test_an_alias_beyond_the_maximum_and_alias_0_are_invalid(
    peer: Join, name: str, number: int
) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.publish("a", items=alias(number)))
    client.expelled(ALIAS_INVALID)


@pytest.mark.proves("MQTT5-3.3.2-7")
def test_an_alias_holds_for_one_connection(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name, kept=True)
    client.publish(f"{name}/a", b"x", items=alias(1))
    client.disconnect()
    again = peer()
    again.connect(name, kept=True)
    again.send(packets.publish("", b"x", items=alias(1)))
    again.expelled(PROTOCOL_ERROR, ALIAS_INVALID)


@pytest.mark.proves("MQTT5-3.2.2-18")
def test_an_alias_that_was_never_named_ends_the_connection(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.publish("", b"x", items=alias(7)))
    client.expelled(PROTOCOL_ERROR, ALIAS_INVALID)


@pytest.mark.proves("MQTT5-3.2.2-15", "MQTT5-4.13.1-1")
def test_a_packet_above_the_brokers_maximum_is_too_large(
    peer: Join, name: str, version: int
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.publish("a", bytes(2**20), version=version))
    client.expelled(0x95)


@pytest.mark.proves("MQTT5-3.1.2-24", "MQTT5-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_its_receiver_is_dropped_and_done(
    peer: Join, name: str, qos: int
) -> None:
    publisher, subscriber = peer(), peer()
    publisher.connect(f"{name}p")
    subscriber.connect(
        f"{name}s", items=[("maximum_packet_size", 100), ("receive_maximum", 1)], kept=True
    )
    subscriber.subscribe(name, qos)
    for payload in (bytes(200), b"small", bytes(101), bytes(60)):
        publisher.publish(name, payload, qos=qos)
    assert [subscriber.message(name).payload for _ in range(2)] == [b"small", bytes(60)]
    subscriber.quiet()


@pytest.mark.proves("MQTT5-4.6.0-5", "MQTT5-4.6.0-6", "MQTT311-4.6.0-5", "MQTT311-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_in_the_order_in_which_they_were_sent(
    peer: Join, name: str, version: int, qos: int
) -> None:
    publisher, subscriber = pair(peer, name, version, qos)
    sent = range(1, 201)
    publisher.send(
        b"".join(
            packets.publish(
                f"{name}/a",
                b"%d" % number,
                version=version,
                qos=qos,
                identifier=number if qos else None,
            )
            for number in sent
        )
    )
    assert [int(subscriber.message().payload) for _ in sent] == list(sent)


@pytest.mark.proves("MQTT311-3.3.5-1", "MQTT5-3.3.4-2")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_highest_qos_of_overlapping_subscriptions_holds(
    peer: Join, name: str, version: int, published: int
) -> None:
    publisher, subscriber = peer(version), peer(version)
    publisher.connect(f"{name}p")
    subscriber.connect(f"{name}s")
    for topic_filter, qos in ((f"{name}/+", 0), (f"{name}/a", 2), (f"{name}/#", 1)):
        subscriber.subscribe(topic_filter, qos)
    publisher.publish(f"{name}/a", b"x", qos=published)
    assert subscriber.message(f"{name}/a").qos == published
    subscriber.quiet()


@pytest.mark.proves("MQTT311-3.3.5-2", "MQTT5-3.4.2-1", "MQTT5-3.5.2-1", "MQTT5-4.3.3-9")
@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
def test_a_message_that_is_not_allowed_is_answered_and_not_passed_on(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, qos: int, answer: str
) -> None:
    publisher, subscriber = pair(own_peer, name, version, qos)
    own_broker.deny_publishing(f"{name}p")
    for _ in range(2):
        publisher.send(packets.publish(f"{name}/a", b"x", version=version, qos=qos, identifier=3))
        answered = publisher.expect(answer, packet_identifier=3)
        assert answered.reason_code == (NOT_AUTHORIZED if version == 5 else 0)
    subscriber.quiet()
