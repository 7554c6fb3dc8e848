"""DISCONNECT and PINGREQ, and what the broker says when it is the one who ends a connection."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Property

MALFORMED, PROTOCOL_ERROR, SHUTTING_DOWN = 0x81, 0x82, 0x8B


def expiring(seconds: int) -> list[Property]:
    return [("session_expiry_interval", seconds)]


@pytest.mark.proves("MQTT5-3.14.4-1", "MQTT5-3.14.4-2", "MQTT311-3.14.4-1", "MQTT311-3.14.4-2")
def test_nothing_after_disconnect_is_taken(peer: Join, name: str, version: int) -> None:
    watcher, client = peer(version), peer(version)
    watcher.connect(f"{name}w")
    watcher.subscribe(name, 0)
    client.connect(name)
    client.send(packets.disconnect() + packets.publish(name, b"after", version=version))
    assert client.is_closed()
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.14.1-1", "MQTT311-3.14.1-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_reserved_flags_of_disconnect_are_malformed(peer: Join, name: str, flags: int) -> None:
    for version in (5, 4):
        client = peer(version)
        client.connect(name)
        client.send(bytes([0xE0 | flags, 0]))
        client.expelled(MALFORMED)


@pytest.mark.proves("MQTT5-3.14.2-1", "MQTT5-4.13.1-1")
@pytest.mark.parametrize(
    "reason_code", [0x01, 0x11, 0x18, 0x84, 0x85, 0x86, 0x8C, 0x91, 0x92, 0xFF]
)
def test_reason_codes_that_disconnect_does_not_have_are_protocol_errors(
    peer: Join, name: str, reason_code: int
) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.disconnect(reason_code))
    client.expelled(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(("asked_s", "present"), [(0, False), (1_000, True), (0xFFFFFFFF, True)])
@pytest.mark.proves("MQTT5-4.1.0-2", "MQTT5-3.1.2-23")
def test_a_disconnect_may_say_how_long_the_session_is_kept(
    own_broker: VirtualBroker, own_peer: Join, name: str, asked_s: int, present: bool
) -> None:
    client = own_peer()
    client.connect(name, clean=False, items=expiring(60))
    client.disconnect(items=expiring(asked_s))
    own_broker.pass_time(100)
    again = own_peer()
    assert again.connect(name, clean=False, items=expiring(60)).session_present is present


def test_a_session_that_was_not_kept_cannot_be_kept_by_disconnect(peer: Join, name: str) -> None:
    client = peer()
    client.connect(name, items=expiring(0))
    client.send(packets.disconnect(items=expiring(60)))
    client.expelled(PROTOCOL_ERROR)
    assert not peer().connect(name, kept=True).session_present


@pytest.mark.proves("MQTT5-4.13.1-1")
@pytest.mark.parametrize(
    ("items", "reason_code"),
    [
        (expiring(1) * 2, PROTOCOL_ERROR),
        ([("reason_string", "a")] * 2, PROTOCOL_ERROR),
        ([("receive_maximum", 1)], MALFORMED),
        ([("server_reference", "elsewhere"), ("topic_alias", 1)], MALFORMED),
    ],
)
def test_wrong_properties_of_disconnect_end_the_connection(
    peer: Join, name: str, items: list[Property], reason_code: int
) -> None:
    client = peer()
    client.connect(name, kept=True)
    client.send(packets.disconnect(items=items))
    client.expelled(reason_code)


@pytest.mark.parametrize(
    "items", [[], [("reason_string", "bye")], [("user_property", ("a", "b"))] * 2]
)
def test_a_disconnect_may_say_why(peer: Join, name: str, items: list[Property]) -> None:
    client = peer()
    client.connect(name)
    client.disconnect(0, items)


@pytest.mark.proves("MQTT5-3.14.2-1", "MQTT5-3.14.2-2", "MQTT5-4.13.2-1")
def test_a_broker_that_stops_says_so(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int
) -> None:
    client, stranger = own_peer(version), own_peer(version)
    client.connect(name)
    own_broker.stop()
    if version == 5:
        assert client.expect("disconnect", reason_code=SHUTTING_DOWN).properties == []
    assert client.is_closed()
    assert stranger.is_closed()


@pytest.mark.proves("MQTT5-3.1.2-29")
@pytest.mark.parametrize("wanted", [None, 0, 1])
def test_a_client_is_told_in_words_what_it_did_unless_it_does_not_want_to_know(
    peer: Join, name: str, wanted: int | None
) -> None:
    client = peer()
    items = [] if wanted is None else [("request_problem_information", wanted)]
    client.connect(name, items=items)
    client.send(packets.publish("a/#", b"x"))
    told = client.expelled(0x90)
    assert told is not None
    assert (told.property("reason_string") is not None) is (wanted != 0)
    if wanted != 0:
        assert "wildcard" in told.property("reason_string")


@pytest.mark.proves("MQTT5-3.14.2-3", "MQTT5-3.1.2-24")
@pytest.mark.parametrize("size", [40, 60, 80, 100, 200])
def test_words_that_do_not_fit_are_left_out(peer: Join, name: str, size: int) -> None:
    client = peer()
    client.connect(name, items=[("maximum_packet_size", size)])
    client.send(packets.publish("a/#", b"x"))
    told = client.expelled(0x90)
    assert told is not None
    assert told.size_bytes <= size
    assert (told.property("reason_string") is not None) is (size >= 60)


@pytest.mark.proves("MQTT5-3.1.2-29")
def test_no_answer_to_a_client_without_problem_information_says_more_than_its_code(
    peer: Join, name: str
) -> None:
    client = peer()
    client.connect(name, items=[("request_problem_information", 0)])
    client.send(packets.subscribe(1, (name, 2)))
    assert client.expect("suback").properties == []
    client.send(packets.unsubscribe(2, name, "none"))
    assert client.expect("unsuback").properties == []
    client.send(packets.publish(name, qos=1, identifier=3))
    assert client.expect("puback").properties == []
    client.send(packets.publish(name, qos=2, identifier=4))
    assert client.expect("pubrec").properties == []
    for identifier in (4, 5):
        client.acknowledge("pubrel", identifier)
        assert client.expect("pubcomp").properties == []


@pytest.mark.proves("MQTT5-3.12.4-1", "MQTT311-3.12.4-1", "MQTT5-3.1.2-20", "MQTT311-3.1.2-23")
def test_each_pingreq_is_answered(peer: Join, name: str, version: int) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.PINGREQ * 20)
    for _ in range(20):
        client.expect("pingresp")
    client.quiet()
