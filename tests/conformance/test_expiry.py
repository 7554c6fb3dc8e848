"""Message Expiry Interval: what is left of it is passed on, and what has none left is not sent."""

import pytest

from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Property
from tests.conformance.peer import Peer


def lasting(seconds: int) -> list[Property]:
    return [("message_expiry_interval", seconds)]


def away(peer: Join, name: str, qos: int) -> None:
    """A session that subscribes and goes."""
    client = peer()
    client.connect(name, kept=True)
    client.subscribe(name, qos)
    client.disconnect()


def back(peer: Join, name: str) -> Peer:
    client = peer()
    client.connect(name, kept=True)
    return client


@pytest.mark.proves("MQTT5-3.3.2-6")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("passed_s", [0, 10, 99])
def test_what_is_left_is_passed_on(
    own_broker: VirtualBroker, own_peer: Join, name: str, qos: int, passed_s: int
) -> None:
    away(own_peer, name, qos)
    publisher = own_peer()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=qos, items=lasting(100))
    own_broker.pass_time(passed_s)
    left = back(own_peer, name).message(name).property("message_expiry_interval")
    assert left in {100 - passed_s - 1, 100 - passed_s}
    assert left > 0


@pytest.mark.proves("MQTT5-3.3.2-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_of_it_is_passed_on_at_once(peer: Join, name: str, qos: int) -> None:
    reader, publisher = peer(), peer()
    reader.connect(name)
    reader.subscribe(name, qos)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=qos, items=lasting(1_000))
    assert reader.message(name).property("message_expiry_interval") in {999, 1_000}


@pytest.mark.proves("MQTT5-3.3.2-5")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_expired_is_not_sent(
    own_broker: VirtualBroker, own_peer: Join, name: str, qos: int
) -> None:
    away(own_peer, name, qos)
    publisher = own_peer()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"short", qos=qos, items=lasting(5))
    publisher.publish(name, b"long", qos=qos, items=lasting(1_000))
    publisher.publish(name, b"for ever", qos=qos)
    own_broker.pass_time(10)
    reader = back(own_peer, name)
    reader.message(name, b"long")
    reader.message(name, b"for ever")
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.2-5")
def test_what_waits_for_the_window_expires_too(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    reader, publisher = own_peer(), own_peer()
    reader.connect(name, items=[("receive_maximum", 1)])
    reader.subscribe(name, 1)
    publisher.connect(f"{name}p")
    for payload, seconds in ((b"1", 1_000), (b"2", 5), (b"3", 1_000)):
        publisher.publish(name, payload, qos=1, items=lasting(seconds))
    first = reader.expect("publish", payload=b"1")
    own_broker.pass_time(20)
    reader.acknowledge("puback", first.packet_identifier)
    reader.message(name, b"3")
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.2-5", "MQTT5-3.3.2-6")
def test_retained_messages_expire(own_broker: VirtualBroker, own_peer: Join, name: str) -> None:
    publisher = own_peer()
    publisher.connect(f"{name}p")
    for topic, seconds in (("a", 10), ("b", 100)):
        publisher.publish(f"{name}/{topic}", b"x", qos=1, retain=True, items=lasting(seconds))
    own_broker.pass_time(50)
    reader = own_peer()
    reader.connect(name)
    reader.subscribe(f"{name}/#", 1)
    found = reader.message(f"{name}/b")
    assert found.property("message_expiry_interval") in {49, 50}
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.2-5")
def test_expiry_counts_on_while_the_broker_is_off(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    away(own_peer, name, 1)
    publisher = own_peer()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"short", qos=1, items=lasting(20))
    publisher.publish(name, b"long", qos=1, items=lasting(1_000))
    own_broker.stop()
    own_broker.wait(30)
    own_broker.begin()
    reader = back(own_peer, name)
    assert reader.message(name, b"long").property("message_expiry_interval") in range(960, 971)
    reader.quiet()


def test_older_readers_get_what_has_not_expired(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    reader = own_peer(4)
    reader.connect(name, kept=True)
    reader.subscribe(name, 1)
    reader.disconnect()
    publisher = own_peer()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"short", qos=1, items=lasting(5))
    publisher.publish(name, b"long", qos=1, items=lasting(1_000))
    own_broker.pass_time(10)
    again = own_peer(4)
    again.connect(name, kept=True)
    again.message(name, b"long")
    again.quiet()


@pytest.mark.proves("MQTT5-4.4.0-1")
@pytest.mark.accepts("S0.60")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_is_completed_and_what_was_not_is_dropped_once_it_has_expired(
    own_broker: VirtualBroker, own_peer: Join, name: str, qos: int
) -> None:
    reader, publisher = own_peer(), own_peer()
    reader.connect(name, kept=True, items=[("receive_maximum", 1)])
    reader.subscribe(name, qos)
    publisher.connect(f"{name}p")
    for payload in (b"sent", b"not sent"):
        publisher.publish(name, payload, qos=qos, items=lasting(5))
    first = reader.expect("publish", payload=b"sent", dup=False)
    own_broker.pass_time(1)
    reader.drop()
    own_broker.pass_time(20)
    again = own_peer()
    again.connect(name, kept=True)
    found = again.message(name, b"sent")
    assert (found.packet_identifier, found.dup) == (first.packet_identifier, True)
    assert found.property("message_expiry_interval") == 1, "none would be for ever"
    again.quiet()


@pytest.mark.accepts("S0.60")
def test_what_a_member_gives_back_has_expired_for_the_others(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    members = [own_peer(), own_peer()]
    for number, member in enumerate(members):
        member.connect(f"{name}{number}", items=[("receive_maximum", 1)])
        member.subscribe(f"$share/g/{name}", 1)
    publisher = own_peer()
    publisher.connect(f"{name}p")
    for payload in (b"1", b"2"):
        publisher.publish(name, payload, qos=1, items=lasting(5))
    held = [member.expect("publish") for member in members]
    own_broker.pass_time(10)
    members[0].drop()
    members[1].acknowledge("puback", held[1].packet_identifier)
    members[1].quiet()
