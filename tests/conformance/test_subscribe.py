"""SUBSCRIBE and UNSUBSCRIBE: what is granted, what replaces what, which options hold."""

import pytest

from tests.conformance import packets
from tests.conformance.conftest import Join
from tests.conformance.peer import Peer

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID, NO_SUBSCRIPTION = 0x81, 0x82, 0x8F, 0x11
NO_LOCAL, AS_PUBLISHED = 0x04, 0x08


def joined(peer: Join, name: str, version: int = 5) -> Peer:
    """A connected client."""
    client = peer(version)
    client.connect(name)
    return client


# --- SUBSCRIBE ---------------------------------------------------------------------------------


@pytest.mark.proves(
    "MQTT5-3.8.4-1",
    "MQTT5-3.8.4-2",
    "MQTT5-3.8.4-5",
    "MQTT5-3.8.4-6",
    "MQTT5-3.8.4-7",
    "MQTT5-3.9.3-1",
    "MQTT5-3.9.3-2",
    "MQTT5-2.2.1-6",
    "MQTT5-3.2.2-8",
    "MQTT311-3.8.4-1",
    "MQTT311-3.8.4-2",
    "MQTT311-3.8.4-4",
    "MQTT311-3.8.4-5",
    "MQTT311-3.9.3-1",
    "MQTT311-3.9.3-2",
    "MQTT311-2.3.1-7",
)
@pytest.mark.parametrize("identifier", [1, 256, 65_535])
def test_a_subscribe_is_answered_filter_by_filter(
    peer: Join, name: str, version: int, identifier: int
) -> None:
    client = joined(peer, name, version)
    wanted = [2, 0, 1, 1, 0, 2]
    filters = [(f"{name}/{place}", qos) for place, qos in enumerate(wanted)]
    client.send(packets.subscribe(identifier, *filters, version=version))
    suback = client.expect("suback", packet_identifier=identifier)
    assert suback.reason_codes == wanted
    publisher = joined(peer, f"{name}p", version)
    for place, qos in enumerate(wanted):
        publisher.publish(f"{name}/{place}", qos=2)
        assert client.message(f"{name}/{place}").qos == qos


@pytest.mark.proves("MQTT5-3.8.4-5", "MQTT311-3.8.4-4")
def test_a_filter_that_comes_twice_counts_as_it_came_last(
    peer: Join, name: str, version: int
) -> None:
    client = joined(peer, name, version)
    client.send(packets.subscribe(1, (name, 2), (name, 0), version=version))
    assert client.expect("suback").reason_codes == [2, 0]
    joined(peer, f"{name}p", version).publish(name, b"x", qos=2)
    assert client.message(name).qos == 0
    client.quiet()


@pytest.mark.proves("MQTT5-3.8.4-3", "MQTT311-3.8.4-3")
def test_a_second_subscription_takes_the_place_of_the_first(
    peer: Join, name: str, version: int
) -> None:
    client, publisher = joined(peer, name, version), joined(peer, f"{name}p", version)
    for qos in (0, 2, 1):
        assert client.subscribe(name, qos) == qos
        publisher.publish(name, b"x", qos=2)
        assert client.message(name).qos == qos
        client.quiet()


@pytest.mark.proves("MQTT5-3.8.4-4", "MQTT311-3.8.4-3")
def test_replacing_a_subscription_loses_nothing(peer: Join, name: str, version: int) -> None:
    client, publisher = joined(peer, name, version), joined(peer, f"{name}p", version)
    client.subscribe(name, 1)
    sent = range(1, 101)
    data = b""
    for number in sent:
        data += packets.publish(name, b"%d" % number, version=version, qos=1, identifier=number)
    publisher.send(data)
    for number in range(10):
        client.send(packets.subscribe(1 + number, (name, 1 + number % 2), version=version))
    found: list[int] = []
    while len(found) < len(sent):
        packet = client.next()
        assert packet is not None
        if packet.kind == "publish":
            found.append(int(packet.payload))
            client.acknowledge("puback", packet.packet_identifier)
    assert found == list(sent)


@pytest.mark.proves(
    "MQTT5-3.8.1-1", "MQTT5-3.10.1-1", "MQTT311-3.8.1-1", "MQTT311-3.10.1-1", "MQTT311-2.2.2-2"
)
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x3, 0x6, 0xA, 0xF])
def test_other_flags_are_malformed(peer: Join, name: str, flags: int) -> None:
    for version in (5, 4):
        client = joined(peer, name, version)
        client.send(packets.subscribe(1, ("a", 0), version=version, first=0x80 | flags))
        client.expelled(MALFORMED)
        client = joined(peer, name, version)
        client.send(packets.unsubscribe(1, "a", version=version, first=0xA0 | flags))
        client.expelled(MALFORMED)


@pytest.mark.proves(
    "MQTT5-3.8.3-2",
    "MQTT5-3.10.3-2",
    "MQTT311-3.8.3-3",
    "MQTT311-3.10.3-2",
    "MQTT311-4.8.0-1",
)
def test_a_packet_without_a_filter_ends_the_connection(peer: Join, name: str, version: int) -> None:
    for data in (packets.subscribe(1, version=version), packets.unsubscribe(1, version=version)):
        client = joined(peer, name, version)
        client.send(data)
        client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves("MQTT5-3.8.3-5", "MQTT5-4.13.1-1")
@pytest.mark.parametrize(
    ("options", "reason_codes"),
    [(0x40, {MALFORMED}), (0x80, {MALFORMED}), (0xC0, {MALFORMED}), (0x03, {0x81, 0x82})],
)
def test_reserved_options_are_malformed(
    peer: Join, name: str, options: int, reason_codes: set[int]
) -> None:
    client = joined(peer, name)
    client.send(packets.subscribe(1, ("a", options)))
    client.expelled(*reason_codes)


def test_retain_handling_3_is_a_protocol_error(peer: Join, name: str) -> None:
    client = joined(peer, name)
    client.send(packets.subscribe(1, ("a", 0x30)))
    client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves("MQTT311-3.8.3-4", "MQTT311-2.2.2-1")
@pytest.mark.parametrize("options", [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80])
def test_reserved_bits_of_an_old_subscribe_end_the_connection(
    peer: Join, name: str, options: int
) -> None:
    client = joined(peer, name, 4)
    client.send(packets.subscribe(1, ("a", options), version=4))
    assert client.is_closed()


@pytest.mark.proves(
    "MQTT5-3.8.3-1",
    "MQTT5-3.10.3-1",
    "MQTT5-4.7.1-1",
    "MQTT5-4.7.1-2",
    "MQTT5-4.7.3-1",
    "MQTT5-4.7.3-2",
    "MQTT311-3.8.3-1",
    "MQTT311-3.10.3-1",
    "MQTT311-4.7.1-2",
    "MQTT311-4.7.1-3",
    "MQTT311-4.7.3-1",
    "MQTT311-4.7.3-2",
)
@pytest.mark.parametrize(
    ("topic_filter", "reason_code"),
    [
        (b"", FILTER_INVALID),
        (b"a#", FILTER_INVALID),
        (b"a/b#", FILTER_INVALID),
        (b"#/a", FILTER_INVALID),
        (b"a/#/b", FILTER_INVALID),
        (b"##", FILTER_INVALID),
        (b"a+", FILTER_INVALID),
        (b"+a", FILTER_INVALID),
        (b"a/+b/c", FILTER_INVALID),
        (b"++", FILTER_INVALID),
        (b"a\0", MALFORMED),
        (b"\xff", MALFORMED),
        (b"\xed\xb0\x80", MALFORMED),
    ],
)
def test_what_is_no_topic_filter_is_refused(
    peer: Join, name: str, version: int, topic_filter: bytes, reason_code: int
) -> None:
    client = joined(peer, name, version)
    client.send(packets.subscribe(1, (topic_filter, 0), version=version))
    client.expelled(reason_code)
    client = joined(peer, name, version)
    client.send(packets.unsubscribe(1, topic_filter, version=version))
    client.expelled(reason_code)


# --- which topics a filter matches -------------------------------------------------------------

MATCHES = [
    ("a/b", ["a/b"], ["a", "a/b/c", "a/", "/a/b", "A/b", "a/B", "b/a"]),
    ("a/+", ["a/b", "a/"], ["a", "a/b/c", "a/b/"]),
    ("a/#", ["a", "a/", "a/b", "a/b/c", "a//"], ["ab", "b/a", "/a"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c", "a/b"]),
    ("+/b", ["a/b", "/b"], ["b", "a/c/b"]),
    ("a/+/#", ["a/b", "a/", "a/b/c", "a/b/c/d"], ["a"]),
    ("/", ["/"], ["", "//", "a"]),
    ("+/+", ["/", "a/b", "/a"], ["a", "a/b/c"]),
    ("/+", ["/", "/a"], ["a", "a/b"]),
    ("a//b", ["a//b"], ["a/b", "a///b"]),
    ("+", ["a", "b"], ["/a", "a/"]),
]


@pytest.mark.proves(
    "MQTT5-3.3.2-3",
    "MQTT5-4.7.1-1",
    "MQTT5-4.7.1-2",
    "MQTT5-4.7.3-4",
    "MQTT311-3.3.2-3",
    "MQTT311-4.7.1-2",
    "MQTT311-4.7.1-3",
    "MQTT311-4.7.3-4",
)
@pytest.mark.parametrize(("topic_filter", "matching", "others"), MATCHES)
def test_filters_match_level_by_level(
    peer: Join, name: str, topic_filter: str, matching: list[str], others: list[str]
) -> None:
    client, publisher = joined(peer, name), joined(peer, f"{name}p", 4)
    assert client.subscribe(f"{name}/{topic_filter}", 0) == 0
    for topic in others:
        publisher.publish(f"{name}/{topic}", b"other")
    for topic in matching:
        publisher.publish(f"{name}/{topic}", b"x")
    assert [client.message(payload=b"x").topic for _ in matching] == [
        f"{name}/{topic}" for topic in matching
    ]
    client.quiet()


@pytest.mark.proves("MQTT5-4.7.2-1", "MQTT311-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/monitor", "+/+", "+"])
@pytest.mark.parametrize("qos", [0, 1])
def test_wildcards_do_not_match_topics_with_a_dollar(
    peer: Join, name: str, version: int, topic_filter: str, qos: int
) -> None:
    client, publisher = joined(peer, name, version), joined(peer, f"{name}p", version)
    literal = joined(peer, f"{name}l", version)
    client.subscribe(topic_filter, qos)
    literal.subscribe(f"${name}/#", qos)
    publisher.publish(f"${name}/monitor", b"hidden", qos=qos)
    literal.message(f"${name}/monitor")
    publisher.publish(f"${name}", b"hidden", qos=qos)
    literal.message(f"${name}")
    publisher.publish(f"${name}/kept", b"hidden", qos=1, retain=True)
    literal.message(f"${name}/kept")
    newcomer = joined(peer, f"{name}n", version)
    newcomer.subscribe("+/kept", 1)
    newcomer.quiet()
    publisher.publish(f"${name}/kept", b"", qos=1, retain=True)
    literal.message(f"${name}/kept")
    # Other tests' messages match too; only this one's would begin with a dollar.
    client.send(packets.PINGREQ)
    while (found := client.next()) is not None and found.kind != "pingresp":
        assert not found.topic.startswith("$")


# --- options -----------------------------------------------------------------------------------


@pytest.mark.proves("MQTT5-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_a_clients_own_messages_from_it(peer: Join, name: str, qos: int) -> None:
    client, other = joined(peer, name), joined(peer, f"{name}o")
    client.subscribe(name, qos | NO_LOCAL)
    other.subscribe(name, qos)
    client.publish(name, b"own", qos=qos)
    other.message(name, b"own")
    client.quiet()
    other.publish(name, b"another's", qos=qos)
    client.message(name, b"another's")


@pytest.mark.proves("MQTT5-3.8.3-3")
@pytest.mark.parametrize("kept", [False, True])
def test_no_local_holds_for_retained_messages(peer: Join, name: str, kept: bool) -> None:
    client, other = peer(), joined(peer, f"{name}o")
    client.connect(name, kept=kept)
    client.publish(f"{name}/own", b"own", qos=1, retain=True)
    other.publish(f"{name}/other", b"another's", qos=1, retain=True)
    client.subscribe(f"{name}/+", 1 | NO_LOCAL)
    client.message(f"{name}/other", b"another's")
    client.quiet()
    client.subscribe(f"{name}/#", 1)
    assert {client.message().payload for _ in range(2)} == {b"own", b"another's"}


@pytest.mark.proves("MQTT5-3.8.3-3")
def test_a_client_without_no_local_gets_its_own(peer: Join, name: str, version: int) -> None:
    client = joined(peer, name, version)
    client.subscribe(name, 0)
    client.publish(name, b"own")
    client.message(name, b"own")


@pytest.mark.proves("MQTT5-3.8.3-3")
def test_no_local_holds_for_a_session_across_connections(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name, kept=True)
    client.subscribe(name, 1 | NO_LOCAL)
    client.send(packets.publish(name, b"own", qos=1, identifier=9))
    client.expect("puback")
    client.drop()
    again = peer()
    again.connect(name, kept=True)
    again.quiet()
    joined(peer, f"{name}o").publish(name, b"another's", qos=1)
    again.message(name, b"another's")


@pytest.mark.proves("MQTT5-3.3.1-12", "MQTT5-3.3.1-13")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published_decides_about_the_flag(
    peer: Join, name: str, qos: int, retain: bool
) -> None:
    without, with_it = joined(peer, name), joined(peer, f"{name}w")
    without.subscribe(name, qos)
    with_it.subscribe(name, qos | AS_PUBLISHED)
    joined(peer, f"{name}p").publish(name, b"x", qos=qos, retain=retain)
    assert without.message(name).retain is False
    assert with_it.message(name).retain is retain


@pytest.mark.proves("MQTT5-3.3.1-13")
def test_retain_as_published_holds_for_what_was_queued(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name, kept=True)
    client.subscribe(name, 1 | AS_PUBLISHED)
    client.disconnect()
    publisher = joined(peer, f"{name}p")
    for retain in (True, False):
        publisher.publish(name, b"x", qos=1, retain=retain)
    again = peer()
    again.connect(name, kept=True)
    assert [again.message(name).retain for _ in range(2)] == [True, False]


@pytest.mark.proves("MQTT5-3.3.4-2", "MQTT5-3.3.4-3", "MQTT5-3.3.4-4")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_identifiers_of_overlapping_subscriptions_come_together(
    peer: Join, name: str, qos: int
) -> None:
    client = joined(peer, name)
    for topic_filter, identifier in (("a", 1), ("+", 268_435_455), ("#", None), ("a/#", 77)):
        items = [("subscription_identifier", identifier)] if identifier else []
        client.subscribe(f"{name}/{topic_filter}", qos, items)
    joined(peer, f"{name}p").publish(f"{name}/a", b"x", qos=qos)
    found = client.message(f"{name}/a")
    assert sorted(found.every("subscription_identifier")) == [1, 77, 268_435_455]
    client.quiet()


@pytest.mark.proves("MQTT5-3.3.4-3", "MQTT5-3.8.4-3")
def test_an_identifier_is_replaced_with_its_subscription(peer: Join, name: str) -> None:
    client, publisher = joined(peer, name), joined(peer, f"{name}p")
    for identifier in (5, None, 6):
        items = [("subscription_identifier", identifier)] if identifier else []
        client.subscribe(name, 1, items)
        publisher.publish(name, b"x", qos=1)
        wanted = [identifier] if identifier else []
        assert client.message(name).every("subscription_identifier") == wanted


@pytest.mark.proves("MQTT5-3.3.4-3", "MQTT5-3.3.4-4")
def test_identifiers_come_with_what_was_queued_and_retained(peer: Join, name: str) -> None:
    publisher = joined(peer, f"{name}p")
    publisher.publish(name, b"retained", qos=1, retain=True)
    client = peer()
    client.connect(name, kept=True)
    client.subscribe(name, 1, [("subscription_identifier", 9)])
    assert client.message(name).every("subscription_identifier") == [9]
    client.disconnect()
    publisher.publish(name, b"queued", qos=1)
    again = peer()
    again.connect(name, kept=True)
    assert again.message(name, b"queued").every("subscription_identifier") == [9]


@pytest.mark.parametrize(
    "items",
    [[("subscription_identifier", 0)], [("subscription_identifier", 1)] * 2],
    ids=["0", "twice"],
)
def test_wrong_subscription_identifiers_are_protocol_errors(
    peer: Join, name: str, items: list[packets.Property]
) -> None:
    client = joined(peer, name)
    client.send(packets.subscribe(1, ("a", 0), items=items))
    client.expelled(PROTOCOL_ERROR)


def test_user_properties_of_subscribe_are_taken(peer: Join, name: str) -> None:
    client = joined(peer, name)
    assert client.subscribe(name, 1, [("user_property", ("a", "b"))] * 3) == 1
    joined(peer, f"{name}p").publish(name, b"x")
    assert client.message(name).properties == []


# --- UNSUBSCRIBE -------------------------------------------------------------------------------


@pytest.mark.proves(
    "MQTT5-3.10.4-1",
    "MQTT5-3.10.4-2",
    "MQTT5-3.10.4-4",
    "MQTT5-3.10.4-5",
    "MQTT5-3.10.4-6",
    "MQTT5-3.11.3-1",
    "MQTT5-3.11.3-2",
    "MQTT5-2.2.1-6",
    "MQTT311-3.10.4-1",
    "MQTT311-3.10.4-2",
    "MQTT311-3.10.4-4",
    "MQTT311-3.10.4-5",
    "MQTT311-3.10.4-6",
    "MQTT311-2.3.1-7",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_unsubscribe_ends_what_is_equal_and_is_answered_filter_by_filter(
    peer: Join, name: str, version: int, qos: int
) -> None:
    client, publisher = joined(peer, name, version), joined(peer, f"{name}p", version)
    for topic_filter in ("a", "b/#", "c/+"):
        client.subscribe(f"{name}/{topic_filter}", qos)
    gone = [f"{name}/{topic}" for topic in ("none", "b/#", "c/x", "b/#", "a/")]
    client.send(packets.unsubscribe(4_321, *gone, version=version))
    unsuback = client.expect("unsuback", packet_identifier=4_321)
    if version == 5:
        codes = [NO_SUBSCRIPTION, 0, NO_SUBSCRIPTION, NO_SUBSCRIPTION, NO_SUBSCRIPTION]
        assert unsuback.reason_codes == codes
    publisher.publish(f"{name}/b/x", b"no longer", qos=qos)
    publisher.publish(f"{name}/c/x", b"still", qos=qos)
    publisher.publish(f"{name}/a", b"still", qos=qos)
    assert [client.message(payload=b"still").topic for _ in range(2)] == [
        f"{name}/c/x",
        f"{name}/a",
    ]
    client.quiet()


@pytest.mark.proves("MQTT5-3.10.4-3", "MQTT311-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_deliveries_that_have_begun_are_completed(
    peer: Join, name: str, version: int, qos: int
) -> None:
    client, publisher = peer(version), joined(peer, f"{name}p", version)
    client.connect(name, kept=True)
    client.subscribe(name, qos)
    publisher.publish(name, b"begun", qos=qos)
    begun = client.expect("publish")
    client.unsubscribe(name)
    client.drop()
    again = peer(version)
    again.connect(name, kept=True)
    again.expect("publish", packet_identifier=begun.packet_identifier, dup=True)
    if qos == 2:
        again.acknowledge("pubrec", begun.packet_identifier)
        again.expect("pubrel", packet_identifier=begun.packet_identifier)
        again.acknowledge("pubcomp", begun.packet_identifier)
    else:
        again.acknowledge("puback", begun.packet_identifier)
    publisher.publish(name, b"no longer", qos=qos)
    again.quiet()
