"""Topic aliases that the broker sets: within what the client allows, and never wrong."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Packet
from tests.conformance.peer import Peer

ROUNDS = 5
LONG = "a-name-that-is-worth-an-alias"


class Names:
    """What each alias of a connection stands for."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._names: dict[int, str] = {}
        self.used = 0
        """Messages that came without their topic's name."""

    def topic(self, message: Packet) -> str:
        """The topic of a message, by its name or by its alias."""
        alias = message.property("topic_alias")
        if alias is None:
            assert message.topic
            return str(message.topic)
        assert 1 <= alias <= self._maximum
        if message.topic:
            self._names[alias] = message.topic
        else:
            self.used += 1
        return self._names[alias]


def read(client: Peer, names: Names, count: int) -> list[str]:
    return [names.topic(client.message()) for _ in range(count)]


@pytest.mark.proves("MQTT5-3.1.2-26", "MQTT5-3.3.2-11", "MQTT5-3.3.2-8", "MQTT5-3.3.2-10")
@pytest.mark.parametrize("maximum", [1, 2, 5, 65_535])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aliases_stay_within_what_the_client_allows(
    peer: Join, name: str, maximum: int, qos: int
) -> None:
    client, publisher = peer(), peer()
    client.connect(name, items=[("topic_alias_maximum", maximum)])
    client.subscribe(f"{name}/#", qos)
    publisher.connect(f"{name}p")
    topics = [f"{name}/{LONG}/{number}" for number in range(4)] * ROUNDS
    names = Names(maximum)
    found = []
    for topic in topics:
        publisher.publish(topic, b"x", qos=qos)
        found += read(client, names, 1)
    assert found == topics
    assert names.used > 0


@pytest.mark.proves("MQTT5-3.1.2-27")
@pytest.mark.parametrize("items", [[], [("topic_alias_maximum", 0)]], ids=["absent", "0"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_that_allows_none_gets_none(
    peer: Join, name: str, items: list[packets.Property], qos: int
) -> None:
    client, publisher = peer(), peer()
    client.connect(name, items=items)
    topic = f"{name}/{LONG}"
    client.subscribe(topic, qos)
    publisher.connect(f"{name}p")
    for _ in range(ROUNDS):
        publisher.publish(topic, b"x", qos=qos, items=[("topic_alias", 1)])
        assert client.message(topic).property("topic_alias") is None


@pytest.mark.proves("MQTT5-3.3.2-7")
def test_the_brokers_aliases_hold_for_one_connection(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    publisher = own_peer()
    publisher.connect(f"{name}p")
    topic = f"{name}/{LONG}"
    for _ in range(3):
        client = own_peer()
        client.connect(name, items=[("topic_alias_maximum", 3)], kept=True)
        client.subscribe(topic, 1)
        names = Names(3)
        for _ in range(ROUNDS):
            publisher.publish(topic, b"x", qos=1)
            # The first on each connection has the name, or the alias stands for nothing.
            assert read(client, names, 1) == [topic]
        client.disconnect()
        own_broker.settle()
