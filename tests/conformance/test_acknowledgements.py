"""PUBACK, PUBREC, PUBREL, PUBCOMP: the exchanges of QoS 1 and 2 in both directions, over
reconnects too."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Packet
from tests.conformance.peer import Peer

PROTOCOL_ERROR, NOT_FOUND, RECEIVE_MAXIMUM_EXCEEDED = 0x82, 0x92, 0x93


def subscribed(peer: Join, name: str, version: int, qos: int = 2) -> Peer:
    """A watcher of `name`."""
    watcher = peer(version)
    watcher.connect(f"{name}w")
    watcher.subscribe(name, qos)
    return watcher


def sent(version: int, name: str, identifier: int, qos: int, dup: bool = False) -> bytes:
    return packets.publish(name, b"x", version=version, qos=qos, identifier=identifier, dup=dup)


# --- what the broker receives ------------------------------------------------------------------


@pytest.mark.proves(
    "MQTT5-4.3.2-4", "MQTT5-4.3.2-5", "MQTT5-2.2.1-5", "MQTT5-3.4.2-1", "MQTT311-4.3.2-2"
)
@pytest.mark.parametrize("identifier", [1, 255, 256, 65_535])
def test_qos_1_is_answered_by_puback_and_the_identifier_is_free_again(
    peer: Join, name: str, version: int, identifier: int
) -> None:
    watcher, client = subscribed(peer, name, version), peer(version)
    client.connect(name)
    for dup in (False, False, True):
        client.send(sent(version, name, identifier, 1, dup))
        client.expect("puback", packet_identifier=identifier, reason_code=0)
        assert watcher.message(name).dup is False
    watcher.quiet()


@pytest.mark.proves(
    "MQTT5-4.3.3-8",
    "MQTT5-4.3.3-10",
    "MQTT5-4.3.3-11",
    "MQTT5-4.3.3-12",
    "MQTT5-2.2.1-5",
    "MQTT5-3.5.2-1",
    "MQTT5-3.7.2-1",
    "MQTT311-4.3.3-2",
)
@pytest.mark.parametrize("identifier", [1, 65_535])
def test_qos_2_is_taken_once_until_it_is_released(
    peer: Join, name: str, version: int, identifier: int
) -> None:
    watcher, client = subscribed(peer, name, version), peer(version)
    client.connect(name)
    for _ in range(2):
        for dup in (False, True, True):
            client.send(sent(version, name, identifier, 2, dup))
            client.expect("pubrec", packet_identifier=identifier, reason_code=0)
        client.acknowledge("pubrel", identifier)
        client.expect("pubcomp", packet_identifier=identifier, reason_code=0)
        watcher.message(name, b"x")
        watcher.quiet()


@pytest.mark.proves("MQTT5-4.3.3-10", "MQTT311-4.3.3-2", "MQTT5-4.4.0-1")
@pytest.mark.parametrize("end", ["connection", "restart", "power cut"])
def test_qos_2_is_taken_once_whatever_happens_before_it_is_released(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, end: str
) -> None:
    client = own_peer(version)
    client.connect(name, kept=True)
    client.send(sent(version, name, 5, 2))
    client.expect("pubrec")
    watcher = own_peer(version)
    watcher.connect(f"{name}w", kept=True)
    watcher.subscribe(name, 2)
    client.drop()
    if end == "restart":
        own_broker.restart()
    elif end == "power cut":
        own_broker.cut_power()
        own_broker.begin()
    client, watcher = own_peer(version), own_peer(version)
    client.connect(name, kept=True)
    watcher.connect(f"{name}w", kept=True)
    client.send(sent(version, name, 5, 2, dup=True))
    client.expect("pubrec", packet_identifier=5)
    client.acknowledge("pubrel", 5)
    client.expect("pubcomp", packet_identifier=5)
    watcher.quiet()
    client.send(sent(version, name, 5, 2))
    client.expect("pubrec", packet_identifier=5)
    watcher.message(name, b"x")


@pytest.mark.proves("MQTT5-3.7.2-1", "MQTT5-3.6.2-1")
def test_a_release_of_nothing_is_completed(peer: Join, name: str, version: int) -> None:
    client = peer(version)
    client.connect(name)
    client.acknowledge("pubrel", 77)
    assert client.expect("pubcomp", packet_identifier=77).reason_code in {0, NOT_FOUND}
    client.quiet()


@pytest.mark.proves("MQTT5-4.3.3-13")
def test_qos_2_is_completed_though_the_message_has_expired(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    client = own_peer()
    client.connect(name)
    client.send(
        packets.publish(name, b"x", qos=2, identifier=3, items=[("message_expiry_interval", 1)])
    )
    client.expect("pubrec", packet_identifier=3)
    own_broker.pass_time(10)
    client.acknowledge("pubrel", 3)
    client.expect("pubcomp", packet_identifier=3, reason_code=0)


@pytest.mark.proves("MQTT5-3.3.4-7", "MQTT5-3.14.2-1")
def test_more_than_the_receive_maximum_ends_the_connection(name: str) -> None:
    broker = VirtualBroker(receive_maximum=3)
    client = Peer(broker)
    assert client.connect(name).property("receive_maximum") == 3
    client.send(b"".join(sent(5, name, number, 2) for number in range(1, 4)))
    for _ in range(3):
        client.expect("pubrec")
    client.send(sent(5, name, 4, 2))
    client.expelled(RECEIVE_MAXIMUM_EXCEEDED)
    broker.close()


@pytest.mark.proves("MQTT5-4.9.0-3", "MQTT5-3.3.4-8")
def test_within_the_receive_maximum_everything_else_goes_on(name: str) -> None:
    broker = VirtualBroker(receive_maximum=3)
    client = Peer(broker)
    client.connect(name)
    client.send(b"".join(sent(5, name, number, 2) for number in range(1, 4)))
    for number in range(1, 4):
        client.expect("pubrec", packet_identifier=number)
    client.publish(name, b"at QoS 0")
    assert client.subscribe(name, 1) == 1
    client.acknowledge("pubrel", 1)
    client.expect("pubcomp", packet_identifier=1)
    client.send(sent(5, name, 4, 1))
    found = {client.next().kind, client.next().kind}  # type: ignore[union-attr]
    assert found == {"puback", "publish"}
    broker.close()


# --- what the broker sends ---------------------------------------------------------------------


def delivered(peer: Join, name: str, version: int, qos: int, count: int = 1) -> list[Packet]:
    """What a kept session `name` gets and does not acknowledge."""
    subscriber, publisher = peer(version), peer(version)
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, qos)
    publisher.connect(f"{name}p")
    for number in range(count):
        publisher.publish(name, b"%d" % number, qos=qos)
    found = [subscriber.expect("publish") for _ in range(count)]
    subscriber.drop()
    return found


def resumed(peer: Join, name: str, version: int) -> Peer:
    subscriber = peer(version)
    subscriber.connect(name, kept=True)
    return subscriber


@pytest.mark.proves(
    "MQTT5-3.3.1-1",
    "MQTT5-4.3.2-1",
    "MQTT5-4.3.2-2",
    "MQTT5-4.3.2-3",
    "MQTT5-4.3.3-1",
    "MQTT5-4.3.3-2",
    "MQTT5-4.3.3-3",
    "MQTT5-4.4.0-1",
    "MQTT5-2.2.1-4",
    "MQTT5-4.6.0-1",
    "MQTT311-3.3.1-1",
    "MQTT311-4.3.2-1",
    "MQTT311-4.3.3-1",
    "MQTT311-4.4.0-1",
    "MQTT311-2.3.1-4",
    "MQTT311-4.6.0-1",
)
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_unacknowledged_comes_again_as_it_was(
    peer: Join, name: str, version: int, qos: int
) -> None:
    first = delivered(peer, name, version, qos, count=5)
    assert len({found.packet_identifier for found in first}) == 5
    assert not any(found.dup for found in first)
    subscriber = resumed(peer, name, version)
    again = [subscriber.expect("publish") for _ in range(5)]
    assert all(found.dup for found in again)
    keys = ("packet_identifier", "payload", "qos", "topic", "retain")
    assert [[found.fields[key] for key in keys] for found in again] == [
        [found.fields[key] for key in keys] for found in first
    ]
    subscriber.quiet()


@pytest.mark.proves("MQTT5-3.3.1-1", "MQTT311-3.3.1-1")
@pytest.mark.parametrize("is_connected", [True, False])
def test_after_a_crash_dup_says_what_may_have_been_sent_before(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, is_connected: bool
) -> None:
    subscriber, publisher = own_peer(version), own_peer(version)
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, 1)
    publisher.connect(f"{name}p")
    if not is_connected:
        subscriber.drop()
    publisher.publish(name, b"before", qos=1)
    if is_connected:
        assert not subscriber.expect("publish").dup
    own_broker.settle()
    own_broker.cut_power(synced=True)
    own_broker.begin()
    own_peer(version).connect(f"{name}q")
    for _ in range(2):
        # Nothing is acknowledged at first: what is not sent again yet keeps its mark.
        subscriber = resumed(own_peer, name, version)
        assert subscriber.expect("publish", payload=b"before").dup is is_connected
        is_connected = True
        subscriber.drop()
    subscriber, publisher = resumed(own_peer, name, version), own_peer(version)
    subscriber.message(name, b"before")
    publisher.connect(f"{name}p")
    publisher.publish(name, b"behind", qos=1)
    assert not subscriber.expect("publish", payload=b"behind").dup


@pytest.mark.proves("MQTT5-4.4.0-1")
def test_nothing_comes_again_while_the_connection_lasts(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int
) -> None:
    subscriber, publisher = own_peer(version), own_peer(version)
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, 2)
    publisher.connect(f"{name}p")
    for qos in (1, 2):
        publisher.publish(name, b"x", qos=qos)
        subscriber.expect("publish", qos=qos)
    own_broker.pass_time(1_000)
    subscriber.quiet()


@pytest.mark.proves("MQTT5-4.3.2-3", "MQTT311-4.3.2-1", "MQTT5-4.5.0-2")
def test_after_puback_nothing_comes_again(peer: Join, name: str, version: int) -> None:
    (found,) = delivered(peer, name, version, 1)
    subscriber = resumed(peer, name, version)
    subscriber.expect("publish")
    subscriber.acknowledge("puback", found.packet_identifier)
    subscriber.quiet()
    subscriber.drop()
    resumed(peer, name, version).quiet()


@pytest.mark.proves(
    "MQTT5-4.3.3-4",
    "MQTT5-4.3.3-5",
    "MQTT5-4.3.3-6",
    "MQTT5-3.6.1-1",
    "MQTT5-3.6.2-1",
    "MQTT311-4.3.3-1",
    "MQTT311-4.4.0-1",
    "MQTT311-3.6.1-1",
)
def test_after_pubrec_only_the_release_comes_again(peer: Join, name: str, version: int) -> None:
    delivered(peer, name, version, 2)
    for _ in range(2):
        subscriber = resumed(peer, name, version)
        found = subscriber.next()
        assert found is not None
        if found.kind == "publish":
            identifier = found.packet_identifier
            subscriber.acknowledge("pubrec", identifier)
            found = subscriber.next()
            assert found is not None
        assert (found.kind, found.packet_identifier) == ("pubrel", identifier)
        subscriber.quiet()
        subscriber.drop()
    subscriber = resumed(peer, name, version)
    subscriber.expect("pubrel", packet_identifier=identifier)
    subscriber.acknowledge("pubcomp", identifier)
    subscriber.quiet()
    subscriber.drop()
    resumed(peer, name, version).quiet()


@pytest.mark.proves("MQTT5-4.4.0-2", "MQTT5-3.4.2-1", "MQTT5-3.5.2-1")
@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
@pytest.mark.parametrize("reason_code", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_a_refused_message_counts_as_acknowledged(
    peer: Join, name: str, qos: int, answer: str, reason_code: int
) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.connect(name, items=[("receive_maximum", 1)], kept=True)
    subscriber.subscribe(name, qos)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"1", qos=qos)
    publisher.publish(name, b"2", qos=qos)
    refused = subscriber.expect("publish", payload=b"1")
    subscriber.acknowledge(
        answer, refused.packet_identifier, reason_code, [("reason_string", "no")]
    )
    # No PUBREL, and its place in the window is free.
    subscriber.message(name, b"2")
    subscriber.drop()
    resumed(peer, name, 5).quiet()


@pytest.mark.proves("MQTT5-4.3.3-7")
def test_a_message_that_was_sent_does_not_expire(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    subscriber, publisher = own_peer(), own_peer()
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, 2)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=2, items=[("message_expiry_interval", 5)])
    first = subscriber.expect("publish")
    subscriber.drop()
    own_broker.pass_time(60)
    again = resumed(own_peer, name, 5)
    again.expect("publish", packet_identifier=first.packet_identifier, dup=True)


@pytest.mark.proves("MQTT5-3.3.4-9", "MQTT5-4.9.0-1", "MQTT5-4.9.0-2", "MQTT5-3.3.4-10")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 2, 10])
def test_the_clients_receive_maximum_is_kept(peer: Join, name: str, qos: int, maximum: int) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.connect(name, items=[("receive_maximum", maximum)])
    subscriber.subscribe(name, qos)
    publisher.connect(f"{name}p")
    for number in range(maximum + 2):
        publisher.publish(name, b"%d" % number, qos=qos)
    first = [subscriber.expect("publish") for _ in range(maximum)]
    # No further message, but answers to everything else, and messages of QoS 0.
    subscriber.quiet()
    assert subscriber.subscribe(f"{name}/0", 0) == 0
    publisher.publish(f"{name}/0", b"at QoS 0")
    subscriber.message(f"{name}/0", b"at QoS 0")
    if qos == 2:
        subscriber.acknowledge("pubrec", first[0].packet_identifier)
        subscriber.expect("pubrel")
        subscriber.quiet()
        subscriber.acknowledge("pubcomp", first[0].packet_identifier)
    else:
        subscriber.acknowledge("puback", first[0].packet_identifier)
    subscriber.expect("publish", payload=b"%d" % maximum)
    subscriber.quiet()


@pytest.mark.proves("MQTT5-4.9.0-1")
def test_the_quota_begins_anew_with_each_connection(peer: Join, name: str) -> None:
    delivered(peer, name, 5, 1, count=3)
    subscriber = peer()
    subscriber.connect(name, items=[("receive_maximum", 2)], kept=True)
    for _ in range(2):
        subscriber.expect("publish", dup=True)
    subscriber.quiet()


@pytest.mark.proves(
    "MQTT5-4.6.0-2",
    "MQTT5-4.6.0-3",
    "MQTT5-4.6.0-4",
    "MQTT311-4.6.0-2",
    "MQTT311-4.6.0-3",
    "MQTT311-4.6.0-4",
)
@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
def test_acknowledgements_are_in_the_order_of_what_they_answer(
    peer: Join, name: str, version: int, qos: int, answer: str
) -> None:
    client = peer(version)
    client.connect(name)
    order = [9, 3, 500, 1, 77]
    client.send(b"".join(sent(version, name, number, qos) for number in order))
    assert [client.expect(answer).packet_identifier for _ in order] == order
    if qos == 2:
        client.send(b"".join(packets.acknowledge("pubrel", number) for number in order))
        assert [client.expect("pubcomp").packet_identifier for _ in order] == order


@pytest.mark.proves("MQTT311-4.6.0-4", "MQTT5-4.3.3-4")
def test_releases_are_in_the_order_of_the_pubrecs(peer: Join, name: str, version: int) -> None:
    first = delivered(peer, name, version, 2, count=4)
    subscriber = resumed(peer, name, version)
    for _ in first:
        subscriber.expect("publish")
    order = [first[place].packet_identifier for place in (2, 0, 3, 1)]
    subscriber.send(b"".join(packets.acknowledge("pubrec", number) for number in order))
    assert [subscriber.expect("pubrel").packet_identifier for _ in order] == order


@pytest.mark.proves("MQTT5-3.6.1-1", "MQTT311-3.6.1-1")
@pytest.mark.parametrize("first", [0x60, 0x61, 0x63, 0x6A])
def test_a_release_with_other_flags_is_malformed(peer: Join, name: str, first: int) -> None:
    for version in (5, 4):
        client = peer(version)
        client.connect(name)
        client.send(sent(version, name, 1, 2))
        client.expect("pubrec")
        client.send(packets.packet(first, b"\0\1"))
        client.expelled(0x81)


@pytest.mark.proves("MQTT5-3.4.2-1", "MQTT5-3.5.2-1", "MQTT5-3.6.2-1", "MQTT5-3.7.2-1")
@pytest.mark.parametrize("kind", list(packets.ACKNOWLEDGEMENTS))
@pytest.mark.parametrize("reason_code", [0x01, 0x81, 0x95, 0xFF])
def test_reason_codes_that_an_acknowledgement_does_not_have_end_the_connection(
    peer: Join, name: str, kind: str, reason_code: int
) -> None:
    client = peer()
    client.connect(name)
    client.acknowledge(kind, 1, reason_code)
    client.expelled(0x81, 0x82)


@pytest.mark.proves("MQTT5-4.13.1-1", "MQTT5-3.14.2-1", "MQTT311-4.8.0-1")
@pytest.mark.parametrize(
    ("qos", "is_received", "answer"),
    [
        (1, False, "pubrec"),
        (1, False, "pubcomp"),
        (2, False, "puback"),
        (2, False, "pubcomp"),
        (2, True, "puback"),
    ],
)
def test_an_answer_that_the_exchange_does_not_await_ends_the_connection(
    peer: Join, name: str, version: int, qos: int, is_received: bool, answer: str
) -> None:
    subscriber, publisher = peer(version), peer(version)
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, qos)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=qos)
    identifier = subscriber.expect("publish").packet_identifier
    if is_received:
        subscriber.acknowledge("pubrec", identifier)
        subscriber.expect("pubrel", packet_identifier=identifier)
    subscriber.acknowledge(answer, identifier)
    subscriber.expelled(PROTOCOL_ERROR)
    # The answer has changed nothing.
    again = resumed(peer, name, version)
    again.expect("pubrel" if is_received else "publish", packet_identifier=identifier)


@pytest.mark.parametrize("kind", ["puback", "pubrec", "pubcomp"])
def test_acknowledgements_of_nothing_hurt_nobody(
    peer: Join, name: str, version: int, kind: str
) -> None:
    client = peer(version)
    client.connect(name)
    client.acknowledge(kind, 4_711)
    if kind == "pubrec":
        assert client.expect("pubrel", packet_identifier=4_711).reason_code in {0, NOT_FOUND}
    client.quiet()


def test_what_does_not_fit_any_more_is_released_since_its_receiver_may_have_it(
    peer: Join, name: str
) -> None:
    publisher, subscriber = peer(), peer()
    publisher.connect(f"{name}p")
    subscriber.connect(name, kept=True)
    subscriber.subscribe(name, 2)
    publisher.publish(name, bytes(200), qos=2)
    identifier = subscriber.expect("publish").packet_identifier
    # Its answer never comes to the broker.
    subscriber.drop()
    smaller = [("maximum_packet_size", 100)]
    again = peer()
    again.connect(name, items=smaller, kept=True)
    again.expect("pubrel", packet_identifier=identifier)
    again.drop()
    once_more = peer()
    once_more.connect(name, items=smaller, kept=True)
    once_more.expect("pubrel", packet_identifier=identifier)
    once_more.acknowledge("pubcomp", identifier)
    publisher.publish(name, b"small", qos=2)
    assert once_more.message(name).payload == b"small"
    once_more.quiet()
