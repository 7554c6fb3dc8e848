"""A persistent session of an APPLICATION client whose work is spread over several instances."""

from collections.abc import Iterator

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.peer import Peer

MESSAGES = 90
FILTER = "$share/workers/in/#"


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    broker = VirtualBroker(application_client_identifiers=("worker*",))
    yield broker
    broker.close()


def instance(broker: VirtualBroker, number: int) -> Peer:
    peer = Peer(broker)
    items = [("session_expiry_interval", 3_600), ("receive_maximum", 5)]
    peer.connect(f"worker{number}", clean=False, items=items)
    return peer


def taken(peer: Peer) -> list[int]:
    """What has come for it, which it acknowledges."""
    peer.send(packets.PINGREQ)
    found = []
    while (packet := peer.next()) is not None and packet.kind == "publish":
        peer.acknowledge("puback", packet.packet_identifier)
        found.append(int(packet.fields["payload"]))
    assert packet is not None
    assert packet.kind == "pingresp"
    return found


@pytest.mark.accepts("S2.38")
@pytest.mark.parametrize("end", ["restart", "power cut"])
def test_what_came_while_all_were_away_is_spread_over_the_instances(
    broker: VirtualBroker, end: str
) -> None:
    instances = [instance(broker, number) for number in range(3)]
    for peer in instances:
        peer.subscribe(FILTER, 1)
    for peer in instances:
        peer.drop()
    publisher = Peer(broker)
    publisher.connect("p")
    for number in range(MESSAGES):
        publisher.publish("in/a", b"%d" % number, qos=1)
    if end == "restart":
        broker.restart()
    else:
        broker.cut_power(synced=True)
        broker.begin()
    instances = [instance(broker, number) for number in range(3)]
    received: list[list[int]] = [[], [], []]
    for _ in range(MESSAGES):
        for peer, got in zip(instances, received, strict=True):
            got += taken(peer)
        broker.pass_time(0.1)
    assert sorted(received[0] + received[1] + received[2]) == list(range(MESSAGES))
    assert all(len(got) >= MESSAGES // 6 for got in received)
    assert all(got == sorted(got) for got in received)
