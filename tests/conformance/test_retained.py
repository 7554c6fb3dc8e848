"""Retained messages: kept, replaced, removed, expired; sent to whom a new subscription says."""

import pytest

from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.peer import Peer

ALWAYS, IF_NEW, NEVER = 0x00, 0x10, 0x20
AS_PUBLISHED = 0x08


def joined(peer: Join, name: str, version: int = 5) -> Peer:
    """A connected client."""
    client = peer(version)
    client.connect(name)
    return client


@pytest.mark.proves(
    "MQTT5-3.3.1-5",
    "MQTT5-3.3.1-9",
    "MQTT311-3.3.1-5",
    "MQTT311-3.3.1-6",
    "MQTT311-3.3.1-7",
    "MQTT311-3.3.1-8",
)
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_last_retained_message_is_sent_to_a_new_subscription(
    peer: Join, name: str, version: int, published: int, granted: int
) -> None:
    publisher = joined(peer, f"{name}p", version)
    for payload in (b"old", b"newer", b"newest"):
        publisher.publish(f"{name}/a", payload, qos=published, retain=True)
    publisher.publish(f"{name}/b", b"other", qos=published, retain=True)
    reader = joined(peer, name, version)
    reader.subscribe(f"{name}/#", granted)
    found = {}
    for _ in range(2):
        message = reader.message()
        assert message.retain
        assert message.qos == min(published, granted)
        found[message.topic] = message.payload
    assert found == {f"{name}/a": b"newest", f"{name}/b": b"other"}
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.1-12", "MQTT311-3.3.1-9")
def test_an_established_subscription_gets_it_as_an_ordinary_message(
    peer: Join, name: str, version: int
) -> None:
    reader = joined(peer, name, version)
    reader.subscribe(name, 1)
    joined(peer, f"{name}p", version).publish(name, b"x", qos=1, retain=True)
    assert reader.message(name).retain is False


@pytest.mark.proves(
    "MQTT5-3.3.1-6",
    "MQTT5-3.3.1-7",
    "MQTT311-3.3.1-10",
    "MQTT311-3.3.1-11",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_one_is_passed_on_and_removes_what_was_kept(
    peer: Join, name: str, version: int, qos: int
) -> None:
    publisher, watcher = joined(peer, f"{name}p", version), joined(peer, f"{name}w", version)
    publisher.publish(name, b"kept", qos=1, retain=True)
    watcher.subscribe(name, 2)
    watcher.message(name, b"kept")
    publisher.publish(name, b"", qos=qos, retain=True)
    found = watcher.message(name, b"")
    assert (found.retain, found.qos) == (False, qos)
    reader = joined(peer, name, version)
    reader.subscribe(name, 2)
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.1-8", "MQTT311-3.3.1-12")
@pytest.mark.parametrize("payload", [b"ordinary", b""])
def test_an_ordinary_message_leaves_the_retained_one_alone(
    peer: Join, name: str, version: int, payload: bytes
) -> None:
    publisher = joined(peer, f"{name}p", version)
    publisher.publish(f"{name}/a", b"kept", qos=1, retain=True)
    for topic in ("a", "b"):
        publisher.publish(f"{name}/{topic}", payload, qos=1)
    reader = joined(peer, name, version)
    reader.subscribe(f"{name}/+", 1)
    reader.message(f"{name}/a", b"kept")
    reader.quiet()


@pytest.mark.proves(
    "MQTT5-3.3.1-9", "MQTT5-3.3.1-10", "MQTT5-3.3.1-11", "MQTT5-3.8.4-4", "MQTT311-3.8.4-3"
)
@pytest.mark.parametrize(
    ("handling", "first", "second"),
    [(ALWAYS, True, True), (IF_NEW, True, False), (NEVER, False, False)],
)
def test_retain_handling_decides_when_they_are_sent(
    peer: Join, name: str, handling: int, first: bool, second: bool
) -> None:
    joined(peer, f"{name}p").publish(name, b"kept", qos=1, retain=True)
    reader = joined(peer, name)
    for sent in (first, second):
        assert reader.subscribe(name, 1 | handling) == 1
        if sent:
            reader.message(name, b"kept")
        reader.quiet()
    reader.unsubscribe(name)
    reader.subscribe(name, 1 | handling)
    if first:
        reader.message(name, b"kept")
    reader.quiet()


@pytest.mark.proves("MQTT5-3.3.1-10")
def test_a_resumed_session_has_its_subscription_already(peer: Join, name: str) -> None:
    joined(peer, f"{name}p").publish(name, b"kept", qos=1, retain=True)
    reader = peer()
    reader.connect(name, kept=True)
    reader.subscribe(name, 1 | IF_NEW)
    reader.message(name, b"kept")
    reader.disconnect()
    again = peer()
    again.connect(name, kept=True)
    again.subscribe(name, 1 | IF_NEW)
    again.quiet()


@pytest.mark.proves("MQTT311-3.8.4-3")
def test_subscribing_again_sends_them_again(peer: Join, name: str, version: int) -> None:
    joined(peer, f"{name}p", version).publish(name, b"kept", qos=1, retain=True)
    reader = joined(peer, name, version)
    for _ in range(3):
        reader.subscribe(name, 1)
        assert reader.message(name, b"kept").retain
        reader.quiet()


@pytest.mark.parametrize("options", [0, AS_PUBLISHED])
@pytest.mark.proves("MQTT5-3.3.1-13", "MQTT311-3.3.1-8")
def test_what_a_new_subscription_is_sent_has_the_flag(peer: Join, name: str, options: int) -> None:
    joined(peer, f"{name}p").publish(name, b"kept", qos=1, retain=True)
    reader = joined(peer, name)
    reader.subscribe(name, 1 | options)
    assert reader.message(name).retain is True


@pytest.mark.proves("MQTT5-3.3.4-3")
def test_each_subscription_is_sent_its_own_copies(peer: Join, name: str) -> None:
    joined(peer, f"{name}p").publish(f"{name}/a", b"kept", qos=1, retain=True)
    reader = joined(peer, name)
    for number, topic_filter in enumerate(("a", "+", "#"), 1):
        items = [("subscription_identifier", number)]
        reader.subscribe(f"{name}/{topic_filter}", 1, items)
        found = reader.message(f"{name}/a")
        assert found.every("subscription_identifier") == [number]


@pytest.mark.proves("MQTT5-3.3.1-5", "MQTT311-3.3.1-5")
@pytest.mark.parametrize("end", ["restart", "power cut"])
def test_retained_messages_outlive_the_broker(
    own_broker: VirtualBroker, own_peer: Join, name: str, end: str
) -> None:
    publisher = joined(own_peer, f"{name}p")
    publisher.publish(f"{name}/a", b"kept", qos=1, retain=True)
    publisher.publish(f"{name}/b", b"removed", qos=1, retain=True)
    publisher.publish(f"{name}/b", b"", qos=1, retain=True)
    if end == "restart":
        own_broker.restart()
    else:
        own_broker.cut_power()
        own_broker.begin()
    reader = joined(own_peer, name)
    reader.subscribe(f"{name}/#", 1)
    reader.message(f"{name}/a", b"kept")
    reader.quiet()
