"""A message that the broker cannot take: each version is told as it can be."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join

QUOTA_EXCEEDED = 0x97
PAYLOAD = bytes(200_000)
MESSAGES_MAXIMUM = 200


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
