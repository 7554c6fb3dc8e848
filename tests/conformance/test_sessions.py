"""Sessions: begun, resumed, thrown away, taken over, expired; in every version."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join

TAKEN_OVER = 0x8E


def before_mqtt_31(version: int) -> bool:
    """MQTT 3.1 has no Session Present; its byte is always 0."""
    return version == 3


@pytest.mark.proves(
    "MQTT5-3.1.2-5",
    "MQTT5-3.1.2-6",
    "MQTT5-3.1.2-23",
    "MQTT5-3.1.3-2",
    "MQTT5-3.2.2-3",
    "MQTT5-4.5.0-1",
    "MQTT311-3.1.2-4",
    "MQTT311-3.1.2-5",
    "MQTT311-3.1.3-2",
    "MQTT311-3.2.2-2",
    "MQTT311-3.2.2-3",
    "MQTT311-4.1.0-1",
    "MQTT311-4.5.0-1",
)
def test_a_session_goes_on_with_what_came_while_it_was_away(
    peer: Join, name: str, version: int
) -> None:
    client, publisher = peer(version), peer(version)
    assert not client.connect(name, kept=True).session_present
    assert client.subscribe(name, 2) == 2
    client.disconnect()
    publisher.connect(f"{name}p")
    for qos in (1, 2):
        publisher.publish(name, bytes([qos]), qos=qos)
    again = peer(version)
    assert again.connect(name, kept=True).session_present is not before_mqtt_31(version)
    assert [again.message(name).payload for _ in range(2)] == [b"\1", b"\2"]
    publisher.publish(name, b"now", qos=1)
    again.message(name, b"now")
    other = peer(version)
    assert not other.connect(f"{name}other", kept=True).session_present
    other.quiet()


@pytest.mark.proves(
    "MQTT5-3.1.2-4",
    "MQTT5-3.1.4-4",
    "MQTT5-3.2.2-2",
    "MQTT311-3.1.2-6",
    "MQTT311-3.1.4-3",
    "MQTT311-3.2.2-1",
)
def test_a_clean_start_throws_the_session_away(peer: Join, name: str, version: int) -> None:
    client, publisher = peer(version), peer(version)
    client.connect(name, kept=True)
    client.subscribe(name, 1)
    client.disconnect()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"missed", qos=1)
    clean = peer(version)
    assert not clean.connect(name).session_present
    publisher.publish(name, b"not subscribed", qos=1)
    clean.quiet()
    clean.disconnect()
    again = peer(version)
    assert not again.connect(name, kept=True).session_present
    again.quiet()


@pytest.mark.proves("MQTT5-3.1.4-3", "MQTT5-3.14.4-2", "MQTT311-3.1.4-2")
@pytest.mark.parametrize("kept", [True, False])
def test_a_second_connection_takes_the_session_over(
    peer: Join, name: str, version: int, kept: bool
) -> None:
    first, second, publisher = peer(version), peer(version), peer(version)
    first.connect(name, kept=kept)
    first.subscribe(name, 1)
    connack = second.connect(name, kept=kept)
    assert connack.session_present is (kept and not before_mqtt_31(version))
    first.expelled(TAKEN_OVER)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=1)
    if kept:
        second.message(name, b"x")
    second.quiet()


def test_versions_take_over_from_one_another(peer: Join, name: str) -> None:
    old, new = peer(4), peer(5)
    old.connect(name, kept=True)
    old.subscribe(name, 1)
    assert new.connect(name, kept=True).session_present
    assert old.is_closed()
    back = peer(4)
    assert back.connect(name, kept=True).session_present
    new.expelled(TAKEN_OVER)


@pytest.mark.proves("MQTT5-4.1.0-2", "MQTT5-3.1.2-23")
@pytest.mark.parametrize("expiry_s", [1, 10, 100])
def test_a_session_ends_when_its_expiry_has_passed(
    own_broker: VirtualBroker, own_peer: Join, name: str, expiry_s: int
) -> None:
    items = [("session_expiry_interval", expiry_s)]
    for away_s, present in ((expiry_s - 0.5, True), (expiry_s + 2.0, False)):
        client = own_peer()
        client.connect(name, clean=False, items=items)
        client.disconnect()
        own_broker.pass_time(away_s)
        again = own_peer()
        assert again.connect(name, clean=False, items=items).session_present is present
        again.close()
        own_broker.pass_time(expiry_s + 5)


@pytest.mark.proves("MQTT5-4.1.0-1", "MQTT311-4.1.0-2", "MQTT311-4.1.0-1")
def test_a_session_lasts_as_long_as_its_connection(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int
) -> None:
    client = own_peer(version)
    client.connect(name, items=[("session_expiry_interval", 1)])
    client.subscribe(name, 1)
    own_broker.pass_time(1_000)
    publisher = own_peer(version)
    publisher.connect(f"{name}p")
    publisher.publish(name, b"still here", qos=1)
    client.message(name, b"still here")


@pytest.mark.proves("MQTT5-4.1.0-2")
def test_a_session_without_expiry_ends_with_its_connection(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name, items=[("session_expiry_interval", 0)])
    client.subscribe(name, 1)
    client.disconnect()
    assert not peer().connect(name, kept=True).session_present


@pytest.mark.proves("MQTT5-3.1.2-23", "MQTT311-3.1.2-4", "MQTT311-4.1.0-1")
@pytest.mark.parametrize("end", ["restart", "power cut"])
def test_a_session_outlives_the_broker(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, end: str
) -> None:
    client, publisher = own_peer(version), own_peer(version)
    client.connect(name, kept=True)
    client.subscribe(name, 1)
    client.disconnect()
    publisher.connect(f"{name}p")
    publisher.publish(name, b"x", qos=1)
    if end == "restart":
        own_broker.restart()
    else:
        own_broker.cut_power()
        own_broker.begin()
    again = own_peer(version)
    assert again.connect(name, kept=True).session_present is not before_mqtt_31(version)
    again.message(name, b"x")


@pytest.mark.proves("MQTT311-3.1.2-7")
def test_retained_messages_outlive_the_session_that_published_them(
    peer: Join, name: str, version: int
) -> None:
    publisher = peer(version)
    publisher.connect(name)
    publisher.publish(name, b"kept", qos=1, retain=True)
    publisher.disconnect()
    reader = peer(version)
    reader.connect(name)
    reader.subscribe(name, 1)
    assert reader.message(name, b"kept").retain


@pytest.mark.proves("MQTT5-3.1.2-22", "MQTT311-3.1.2-24", "MQTT5-3.2.2-22")
@pytest.mark.parametrize("keep_alive_s", [1, 10, 60])
def test_a_silent_client_is_cut_off_after_one_and_a_half_keep_alives(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, keep_alive_s: int
) -> None:
    client = own_peer(version)
    client.connect(name, keep_alive_s=keep_alive_s)
    for _ in range(3):
        own_broker.pass_time(1.4 * keep_alive_s)
        client.send(packets.PINGREQ)
        client.expect("pingresp")
    # Moments are looked at once a second.
    own_broker.pass_time(1.5 * keep_alive_s + 1.1)
    client.expelled(0x8D)


@pytest.mark.parametrize("packet", [packets.PINGREQ, packets.publish("a", b"x", version=4)])
@pytest.mark.proves("MQTT5-3.1.2-22", "MQTT5-3.12.4-1", "MQTT311-3.12.4-1")
def test_any_packet_keeps_a_client_alive(
    own_broker: VirtualBroker, own_peer: Join, name: str, packet: bytes
) -> None:
    client = own_peer(4)
    client.connect(name, keep_alive_s=10)
    for _ in range(10):
        own_broker.pass_time(14.0)
        client.send(packet)
    client.send(packets.PINGREQ)
    for _ in range(11 if packet == packets.PINGREQ else 1):
        client.expect("pingresp")


def test_keep_alive_0_never_ends_a_connection(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int
) -> None:
    client = own_peer(version)
    client.connect(name, keep_alive_s=0)
    own_broker.pass_time(1_000)
    client.quiet()
