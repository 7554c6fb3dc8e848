"""Shared subscriptions: each message to one member, on that member's terms."""

import pytest

from tests.conformance import packets
from tests.conformance.conftest import Join
from tests.conformance.peer import Peer

FILTER_INVALID, PROTOCOL_ERROR, NO_LOCAL = 0x8F, 0x82, 0x04


def member(peer: Join, name: str, group: str, qos: int, version: int = 5) -> Peer:
    """A client that shares `group`."""
    client = peer(version)
    client.connect(name, kept=True)
    assert client.subscribe(f"$share/g/{group}", qos) == qos
    return client


def publisher_of(peer: Join, name: str) -> Peer:
    publisher = peer()
    publisher.connect(f"{name}p")
    return publisher


@pytest.mark.proves("MQTT5-4.8.2-1", "MQTT5-4.8.2-2")
@pytest.mark.parametrize(
    "wrong", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/#/a"]
)
def test_a_share_without_a_name_or_a_filter_is_refused(
    peer: Join, name: str, version: int, wrong: str
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.subscribe(1, (wrong, 1), version=version))
    client.expelled(FILTER_INVALID)


@pytest.mark.proves("MQTT5-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.subscribe(1, (f"$share/g/{name}", 1 | NO_LOCAL)))
    client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves("MQTT5-4.8.2-3", "MQTT5-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_each_member_gets_its_messages_at_its_own_qos(
    peer: Join, name: str, published: int
) -> None:
    members = [member(peer, f"{name}{qos}", name, qos) for qos in (0, 1, 2)]
    publisher = publisher_of(peer, name)
    for _ in range(6):
        publisher.publish(name, b"x", qos=published)
    for qos, client in enumerate(members):
        for _ in range(2):
            assert client.message(name, b"x").qos == min(qos, published)
        client.quiet()


def test_each_message_goes_to_one_member(peer: Join, name: str, version: int) -> None:
    members = [member(peer, f"{name}{number}", name, 1, version) for number in range(2)]
    publisher = publisher_of(peer, name)
    for number in range(10):
        publisher.publish(name, b"%d" % number, qos=1)
    found = [[int(client.message().payload) for _ in range(5)] for client in members]
    assert sorted(found[0] + found[1]) == list(range(10))
    for client, own in zip(members, found, strict=True):
        assert own == sorted(own)
        client.quiet()


@pytest.mark.proves("MQTT5-4.8.2-4")
@pytest.mark.parametrize("received", [False, True])
def test_a_qos_2_delivery_is_completed_to_the_member_it_began_with(
    peer: Join, name: str, received: bool
) -> None:
    first = member(peer, f"{name}1", name, 2)
    publisher = publisher_of(peer, name)
    publisher.publish(name, b"x", qos=2)
    begun = first.expect("publish").packet_identifier
    if received:
        first.acknowledge("pubrec", begun)
        first.expect("pubrel", packet_identifier=begun)
    second = member(peer, f"{name}2", name, 2)
    first.drop()
    second.quiet()
    again = peer()
    again.connect(f"{name}1", kept=True)
    if received:
        again.expect("pubrel", packet_identifier=begun)
    else:
        again.expect("publish", packet_identifier=begun, dup=True)
        again.acknowledge("pubrec", begun)
        again.expect("pubrel", packet_identifier=begun)
    again.acknowledge("pubcomp", begun)
    again.quiet()
    second.quiet()


@pytest.mark.proves("MQTT5-4.8.2-5")
def test_a_qos_2_delivery_ends_with_its_members_session(peer: Join, name: str) -> None:
    first = member(peer, f"{name}1", name, 2)
    publisher_of(peer, name).publish(name, b"x", qos=2)
    first.expect("publish")
    second = member(peer, f"{name}2", name, 2)
    first.drop()
    clean = peer()
    clean.connect(f"{name}1")
    second.quiet()
    clean.quiet()


@pytest.mark.proves("MQTT5-4.8.2-6", "MQTT5-4.4.0-2")
@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
@pytest.mark.parametrize("reason_code", [0x80, 0x83, 0x97])
def test_a_message_that_a_member_refuses_goes_to_nobody_else(
    peer: Join, name: str, qos: int, answer: str, reason_code: int
) -> None:
    first = member(peer, f"{name}1", name, qos)
    publisher_of(peer, name).publish(name, b"x", qos=qos)
    refused = first.expect("publish")
    second = member(peer, f"{name}2", name, qos)
    first.acknowledge(answer, refused.packet_identifier, reason_code)
    first.quiet()
    first.drop()
    second.quiet()


def test_connack_does_not_deny_shared_subscriptions(peer: Join, name: str) -> None:
    connack = peer().connect(name)
    assert connack.property("shared_subscription_available") in {None, 1}
