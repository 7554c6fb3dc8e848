"""CONNECT: what is taken, what is refused and with which words, and what a second one does."""

import string

import pytest

from tests.conformance import packets
from tests.conformance.conftest import Join
from tests.conformance.packets import Will

MALFORMED, PROTOCOL_ERROR, UNSUPPORTED, NOT_VALID = 0x81, 0x82, 0x84, 0x85


@pytest.mark.proves(
    "MQTT5-3.1.4-5",
    "MQTT5-3.2.0-1",
    "MQTT5-3.2.2-1",
    "MQTT5-3.2.2-8",
    "MQTT311-3.1.4-4",
    "MQTT311-3.2.0-1",
    "MQTT5-4.2-1",
    "MQTT311-7.1.1-1",
    "MQTT311-7.0.0-2",
)
def test_a_connect_is_answered_by_connack(peer: Join, name: str, version: int) -> None:
    client = peer(version)
    connack = client.connect(name)
    assert (connack.reason_code, connack.session_present) == (0, False)
    client.quiet()


@pytest.mark.proves("MQTT5-3.1.0-1", "MQTT311-3.1.0-1", "MQTT5-3.14.0-1")
@pytest.mark.parametrize(
    "data",
    [
        packets.publish("a", b"x"),
        packets.publish("a", b"x", qos=1, identifier=1),
        packets.subscribe(1, ("a", 0)),
        packets.unsubscribe(1, "a"),
        packets.PINGREQ,
        packets.disconnect(),
        packets.auth(0x18, [("authentication_method", "x")]),
        *(packets.acknowledge(kind, 1) for kind in packets.ACKNOWLEDGEMENTS),
        packets.packet(0x00, b""),
        packets.packet(0x20, b"\0\0\0"),
        packets.packet(0x90, b"\0\1\0\0"),
        packets.packet(0xD0, b""),
    ],
    ids=lambda data: f"{data[0]:#x}",
)
def test_whoever_does_not_begin_with_connect_is_cut_off(peer: Join, data: bytes) -> None:
    stranger = peer()
    stranger.send(data)
    assert stranger.is_closed()


@pytest.mark.proves("MQTT5-3.1.0-2", "MQTT5-3.2.0-2", "MQTT311-3.1.0-2", "MQTT311-4.8.0-1")
def test_a_second_connect_ends_the_connection(peer: Join, name: str, version: int) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.connect(name, version=version))
    client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves("MQTT5-3.1.2-1", "MQTT311-3.1.2-1", "MQTT5-3.1.4-1")
@pytest.mark.parametrize("written", ["MQTX", "mqtt", "MQTT2", "", "MQIsdp"])
def test_another_protocol_name_is_not_taken(peer: Join, name: str, written: str) -> None:
    client = peer(4)
    client.send(packets.connect(name, version=5, name=written or "M"))
    connack = client.next()
    assert connack is None or connack.reason_code == 1
    assert connack is None or client.is_closed()


@pytest.mark.proves("MQTT5-3.1.2-2", "MQTT5-3.2.2-7", "MQTT5-4.13.2-1")
@pytest.mark.parametrize("level", [6, 7, 255])
def test_a_later_version_is_told_that_it_is_not_supported(
    peer: Join, name: str, level: int
) -> None:
    assert peer(5).refused(packets.connect(name, version=level)) == UNSUPPORTED


@pytest.mark.proves("MQTT311-3.1.2-2", "MQTT311-3.2.2-5", "MQTT311-3.2.2-4")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 0x84])
def test_an_unknown_level_is_answered_with_return_code_1(peer: Join, name: str, level: int) -> None:
    assert peer(4).refused(packets.connect(name, version=level, name="MQTT")) == 1


@pytest.mark.proves(
    "MQTT5-3.1.2-3", "MQTT5-3.1.2-11", "MQTT5-3.1.2-12", "MQTT5-3.1.2-13", "MQTT5-4.13.1-1"
)
@pytest.mark.parametrize("flags", [0x03, 0x0A, 0x12, 0x22, 0x1E])
def test_wrong_connect_flags_are_malformed(peer: Join, name: str, flags: int) -> None:
    will = Will("w") if flags & 0x04 else None
    assert peer().refused(packets.connect(name, flags=flags, will=will)) == MALFORMED


@pytest.mark.proves(
    "MQTT311-3.1.2-3",
    "MQTT311-3.1.2-11",
    "MQTT311-3.1.2-13",
    "MQTT311-3.1.2-14",
    "MQTT311-3.1.2-15",
    "MQTT311-3.1.2-22",
    "MQTT311-3.1.4-1",
    "MQTT311-3.2.2-6",
    "MQTT311-3.2.0-1",
)
@pytest.mark.parametrize("flags", [0x03, 0x0A, 0x12, 0x22, 0x1E, 0x42])
def test_wrong_connect_flags_of_old_clients_end_the_connection_without_connack(
    peer: Join, name: str, flags: int
) -> None:
    client = peer(4)
    will = Will("w") if flags & 0x04 else None
    password = b"p" if flags & 0x40 else None
    client.send(packets.connect(name, version=4, flags=flags, will=will, password=password))
    assert client.is_closed()


@pytest.mark.proves(
    "MQTT5-3.1.2-16",
    "MQTT5-3.1.2-17",
    "MQTT5-3.1.2-18",
    "MQTT5-3.1.2-19",
    "MQTT5-3.1.2-9",
    "MQTT5-3.1.3-1",
    "MQTT5-3.1.3-3",
)
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        pytest.param(0x82, {}, id="no user name"),
        pytest.param(0x42, {}, id="no password"),
        pytest.param(0xC2, {"user_name": "u"}, id="only a user name"),
        pytest.param(0x02, {"user_name": "u"}, id="a user name too many"),
        pytest.param(0x82, {"user_name": "u", "password": b"p"}, id="a password too many"),
        pytest.param(0x06, {}, id="no Will"),
        pytest.param(0x02, {"will": Will("w")}, id="a Will too many"),
    ],
)
@pytest.mark.proves(
    "MQTT311-3.1.2-18",
    "MQTT311-3.1.2-19",
    "MQTT311-3.1.2-20",
    "MQTT311-3.1.2-21",
    "MQTT311-3.1.2-9",
    "MQTT311-3.1.3-1",
    "MQTT311-3.1.3-3",
)
def test_flags_and_payload_of_connect_agree(
    peer: Join, name: str, flags: int, fields: dict[str, object], version: int
) -> None:
    client = peer(version)
    client.send(packets.connect(name, version=version, flags=flags, **fields))  # type: ignore[arg-type]
    if version == 5:
        assert client.expect("connack").reason_code in {MALFORMED, PROTOCOL_ERROR}
    assert client.is_closed()


@pytest.mark.proves("MQTT5-3.1.3-3", "MQTT311-3.1.3-3")
def test_a_connect_without_a_client_identifier_field_is_refused(peer: Join, version: int) -> None:
    client = peer(version)
    whole = packets.connect("", version=version)
    client.send(packets.packet(0x10, whole[2:-2]))
    if version == 5:
        assert client.expect("connack").reason_code == MALFORMED
    assert client.is_closed()


@pytest.mark.proves(
    "MQTT5-3.1.3-4",
    "MQTT5-3.1.3-11",
    "MQTT5-3.1.3-12",
    "MQTT5-1.5.4-1",
    "MQTT5-1.5.4-2",
    "MQTT311-3.1.3-4",
    "MQTT311-3.1.3-10",
    "MQTT311-3.1.3-11",
    "MQTT311-1.5.3-1",
    "MQTT311-1.5.3-2",
)
@pytest.mark.parametrize("field", ["client", "will", "user name"])
@pytest.mark.parametrize(
    "wrong", [b"\xff", b"a\0b", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\x80", b"\xe2\x82"]
)
def test_text_that_is_not_text_is_refused(
    peer: Join, name: str, field: str, wrong: bytes, version: int
) -> None:
    client = peer(version)
    client.send(
        packets.connect(
            wrong if field == "client" else name,
            version=version,
            will=Will(wrong) if field == "will" else None,
            user_name=wrong if field == "user name" else None,
        )
    )
    if version == 5:
        assert client.expect("connack").reason_code == MALFORMED
    assert client.is_closed()


@pytest.mark.proves("MQTT5-3.1.3-5", "MQTT311-3.1.3-5")
@pytest.mark.parametrize(
    "client",
    ["a", "Z", "0", string.ascii_lowercase[:23], string.digits + "ABCDEFGHIJKLM", "X" * 23],
)
def test_plain_identifiers_are_taken(peer: Join, client: str, version: int) -> None:
    connection = peer(version)
    connection.connect(client)
    connection.disconnect()


@pytest.mark.proves("MQTT5-3.1.3-6", "MQTT5-3.1.3-7", "MQTT5-3.2.2-16")
def test_clients_without_an_identifier_are_told_one_each(peer: Join) -> None:
    first, second = peer(), peer()
    names = [
        client.connect("", kept=True).property("assigned_client_identifier")
        for client in (first, second)
    ]
    assert len({*names, None}) == 3
    first.disconnect()
    again = peer()
    assert again.connect(names[0], kept=True).session_present


@pytest.mark.proves("MQTT311-3.1.3-6")
def test_old_clients_without_an_identifier_are_kept_apart(peer: Join, name: str) -> None:
    first, second = peer(4), peer(4)
    for client in (first, second):
        client.connect("")
        assert client.subscribe(name, 0) == 0
    peer_of_both = peer(4)
    peer_of_both.connect(name)
    peer_of_both.publish(name, b"x")
    assert first.message(name).payload == second.message(name).payload == b"x"


@pytest.mark.proves("MQTT311-3.1.3-7", "MQTT311-3.1.3-8", "MQTT311-3.2.2-5", "MQTT311-3.2.2-4")
def test_no_identifier_and_a_session_to_keep_is_return_code_2(peer: Join) -> None:
    assert peer(4).refused(packets.connect("", version=4, clean=False)) == 2


def test_mqtt_31_asks_for_an_identifier(peer: Join) -> None:
    assert peer(3).refused(packets.connect("", version=3)) == 2


@pytest.mark.proves("MQTT5-3.1.3-8", "MQTT5-3.1.4-2", "MQTT5-3.2.2-6", "MQTT311-3.1.3-9")
def test_an_identifier_that_is_too_long_is_not_valid(peer: Join, version: int) -> None:
    data = packets.connect("x" * 1_025, version=version)
    assert peer(version).refused(data) == (NOT_VALID if version == 5 else 2)


@pytest.mark.proves("MQTT5-3.1.4-6", "MQTT311-3.1.4-5")
def test_what_follows_a_refused_connect_is_not_processed(
    peer: Join, name: str, version: int
) -> None:
    watcher = peer(version)
    watcher.connect(name)
    watcher.subscribe(name, 0)
    client = peer(version)
    refused = packets.connect("x" * 1_025, version=version)
    client.send(refused + packets.publish(name, b"no", version=version))
    assert client.expect("connack").reason_code != 0
    assert client.is_closed()
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.2-30", "MQTT5-3.2.0-1", "MQTT5-3.2.0-2")
def test_what_comes_with_connect_is_taken_after_connack(peer: Join, name: str) -> None:
    client = peer()
    client.send(packets.connect(name) + packets.subscribe(1, (name, 1)) + packets.PINGREQ)
    assert client.expect("connack").reason_code == 0
    assert {client.next().kind, client.next().kind} == {"suback", "pingresp"}  # type: ignore[union-attr]


@pytest.mark.proves("MQTT5-2.2.2-1", "MQTT5-3.1.4-1")
@pytest.mark.parametrize(
    "items",
    [
        [("receive_maximum", 0)],
        [("maximum_packet_size", 0)],
        [("request_problem_information", 2)],
        [("request_response_information", 2)],
        [("authentication_data", b"without a method")],
        *([(name, 1), (name, 1)] for name in ("receive_maximum", "maximum_packet_size")),
        *([(name, 1), (name, 1)] for name in ("session_expiry_interval", "topic_alias_maximum")),
        [("request_problem_information", 1), ("request_problem_information", 1)],
    ],
    ids=str,
)
def test_properties_with_values_that_do_not_exist_are_protocol_errors(
    peer: Join, name: str, items: list[packets.Property]
) -> None:
    assert peer().refused(packets.connect(name, items=items)) == PROTOCOL_ERROR


@pytest.mark.proves("MQTT5-3.1.4-1")
@pytest.mark.parametrize("wrong", ["topic_alias", "reason_string", "server_keep_alive"])
def test_properties_of_other_packets_are_malformed(peer: Join, name: str, wrong: str) -> None:
    value = "x" if wrong == "reason_string" else 1
    assert peer().refused(packets.connect(name, items=[(wrong, value)])) == MALFORMED


@pytest.mark.proves("MQTT5-3.1.4-1", "MQTT311-3.1.4-1")
@pytest.mark.parametrize("topic", ["", "a/+", "#"])
def test_a_will_topic_that_is_no_topic_name_is_refused(
    peer: Join, name: str, topic: str, version: int
) -> None:
    client = peer(version)
    client.send(packets.connect(name, version=version, will=Will(topic)))
    if version == 5:
        assert client.expect("connack").reason_code == 0x90
    assert client.is_closed()


@pytest.mark.proves("MQTT5-1.5.5-1", "MQTT5-4.13.1-1")
def test_needless_bytes_of_a_length_are_malformed(peer: Join, name: str) -> None:
    whole = packets.connect(name)
    assert peer().refused(whole[:1] + bytes([whole[1] | 0x80, 0]) + whole[2:]) == MALFORMED
    client = peer()
    client.connect(name)
    client.send(b"\xc0\x80\x00")
    client.expelled(MALFORMED)


@pytest.mark.proves("MQTT5-2.1.3-1", "MQTT311-2.2.2-1", "MQTT311-2.2.2-2")
@pytest.mark.parametrize(
    "first", [0x41, 0x52, 0x60, 0x63, 0x78, 0x80, 0x83, 0xA0, 0xA3, 0xC1, 0xC2, 0xE4]
)
def test_reserved_flags_of_a_fixed_header_end_the_connection(
    peer: Join, name: str, first: int
) -> None:
    for version in (5, 4):
        client = peer(version)
        client.connect(name)
        client.send(packets.packet(first, b"" if first >= 0xC0 else b"\0\1"))
        client.expelled(MALFORMED)


@pytest.mark.proves("MQTT5-4.13.1-1", "MQTT311-4.8.0-1")
@pytest.mark.parametrize("first", [0x00, 0x20, 0x90, 0xB0, 0xD0])
def test_packets_that_only_servers_send_end_the_connection(
    peer: Join, name: str, first: int, version: int
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.packet(first, b"\0\1"))
    client.expelled(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.proves("MQTT5-4.13.1-1", "MQTT311-4.8.0-1")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xc0\x01\x00", id="a byte after PINGREQ"),
        pytest.param(b"\x40\x01\x00", id="half a packet identifier"),
        pytest.param(b"\x30\x03\x00\x05a", id="a topic name that passes the end"),
        pytest.param(b"\x82\x03\x00\x01\x00", id="half a topic filter"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="a length of five bytes"),
    ],
)
def test_lengths_that_do_not_fit_end_the_connection(
    peer: Join, name: str, data: bytes, version: int
) -> None:
    client = peer(version)
    client.connect(name)
    client.send(data)
    client.expelled(MALFORMED, PROTOCOL_ERROR)
