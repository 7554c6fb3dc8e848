"""A message that the broker cannot take: each version is told as it can be."""

from collections.abc import Iterator

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Will
from tests.conformance.peer import Peer

QUOTA_EXCEEDED = 0x97
PAYLOAD = bytes(200_000)
MESSAGES_MAXIMUM = 200
WILL_BYTES = 60_000


@pytest.fixture
def own_broker() -> Iterator[VirtualBroker]:
    """A broker whose retention leaves a full disk full."""
    broker = VirtualBroker(retention_bytes=2**40)
    yield broker
    broker.close()


@pytest.mark.proves("MQTT5-4.3.3-9", "MQTT5-3.4.2-1", "MQTT5-3.5.2-1")
@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
def test_a_refusal_frees_the_packet_identifier(
    own_broker: VirtualBroker, own_peer: Join, name: str, qos: int, answer: str
) -> None:
    client = own_peer()
    client.connect(name)
    own_broker.fill_disk()
    data = packets.publish(name, PAYLOAD, qos=qos, identifier=7)
    for _ in range(MESSAGES_MAXIMUM):
        client.send(data)
        found = client.expect(answer, packet_identifier=7)
        if found.reason_code:
            break
        if qos == 2:
            client.acknowledge("pubrel", 7)
            client.expect("pubcomp")
    assert found.reason_code == QUOTA_EXCEEDED
    own_broker.free_disk()
    # The same packet identifier is a new message: it is taken now.
    client.send(data)
    client.expect(answer, packet_identifier=7, reason_code=0)


@pytest.mark.proves("MQTT311-4.8.0-2")
def test_an_old_client_that_cannot_be_told_is_cut_off(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    client = own_peer(4)
    client.connect(name)
    own_broker.fill_disk()
    for _ in range(MESSAGES_MAXIMUM):
        client.send(packets.publish(name, PAYLOAD, version=4, qos=1, identifier=7))
        found = client.next()
        if found is None:
            return
        assert found.kind == "puback"
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_will_that_finds_the_disk_full_is_published_once_there_is_room(
    own_broker: VirtualBroker, own_peer: Join, name: str, qos: int, kept: bool
) -> None:
    watcher, mortal, filler = own_peer(), own_peer(), own_peer()
    watcher.connect(f"{name}w")
    watcher.subscribe(f"{name}/will", 2)
    mortal.connect(name, will=Will(f"{name}/will", bytes(WILL_BYTES), qos), kept=kept)
    filler.connect(f"{name}f")
    own_broker.fill_disk()
    fill(own_broker, filler, name)
    mortal.drop()
    watcher.quiet()
    own_broker.pass_time(5)
    watcher.quiet()
    own_broker.free_disk()
    own_broker.pass_time(2)
    watcher.message(f"{name}/will")
    own_broker.pass_time(5)
    watcher.quiet()


def test_a_will_whose_client_has_come_back_meanwhile_is_not_lost_on_a_full_disk(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    watcher, mortal, filler = own_peer(), own_peer(), own_peer()
    watcher.connect(f"{name}w")
    watcher.subscribe(f"{name}/will", 1)
    mortal.connect(name, will=Will(f"{name}/will", bytes(WILL_BYTES), 1), kept=True)
    filler.connect(f"{name}f")
    own_broker.fill_disk()
    fill(own_broker, filler, name)
    mortal.drop()
    own_broker.pass_time(3)
    again = own_peer()
    again.connect(name, kept=True)
    own_broker.pass_time(3)
    watcher.quiet()
    own_broker.free_disk()
    own_broker.pass_time(2)
    watcher.message(f"{name}/will")
    watcher.quiet()


def fill(broker: VirtualBroker, client: Peer, name: str) -> None:
    """Publishes until the log refuses what is as large as a Will, and goes on refusing it when
    ended segments have their footers: what their files had left is free then."""
    for _ in range(MESSAGES_MAXIMUM):
        if is_refused(client, name):
            broker.pass_time(2)
            if is_refused(client, name):
                return
    raise AssertionError("the disk was never full")


def is_refused(client: Peer, name: str) -> bool:
    client.send(packets.publish(f"{name}/fill", bytes(WILL_BYTES), qos=1, identifier=7))
    return bool(client.expect("puback").reason_code)
