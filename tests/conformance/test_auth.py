"""AUTH and enhanced authentication: the broker offers no method, and says so."""

import pytest

from tests.conformance import packets
from tests.conformance.conftest import Join
from tests.conformance.packets import Property

MALFORMED, PROTOCOL_ERROR, BAD_METHOD = 0x81, 0x82, 0x8C
CONTINUE, REAUTHENTICATE = 0x18, 0x19
METHOD: list[Property] = [("authentication_method", "SCRAM-SHA-256")]
DATA: list[Property] = [("authentication_data", b"client first")]


@pytest.mark.proves("MQTT5-4.12.0-1", "MQTT5-4.12.0-4", "MQTT5-3.1.4-2", "MQTT5-3.2.2-7")
@pytest.mark.parametrize("items", [METHOD, METHOD + DATA, [("authentication_method", "")]])
def test_a_method_that_is_not_offered_is_a_bad_one(
    peer: Join, name: str, items: list[Property]
) -> None:
    client = peer()
    client.send(packets.connect(name, items=items))
    connack = client.expect("connack", reason_code=BAD_METHOD, session_present=False)
    assert connack.property("authentication_method") is None
    assert client.is_closed()


@pytest.mark.proves("MQTT5-3.1.4-6", "MQTT5-3.1.2-30", "MQTT5-4.12.0-3")
def test_an_auth_after_a_refused_connect_changes_nothing(peer: Join, name: str) -> None:
    client = peer()
    client.send(packets.connect(name, items=METHOD) + packets.auth(CONTINUE, METHOD + DATA))
    client.expect("connack", reason_code=BAD_METHOD)
    assert client.is_closed()


@pytest.mark.proves("MQTT5-4.12.0-7", "MQTT5-4.12.1-1", "MQTT5-4.12.1-2", "MQTT5-3.15.2-1")
@pytest.mark.parametrize("reason_code", [0x00, CONTINUE, REAUTHENTICATE, 0x01, 0x80])
def test_auth_without_a_method_in_connect_is_a_protocol_error(
    peer: Join, name: str, reason_code: int
) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.auth(reason_code, METHOD + DATA))
    client.expelled(PROTOCOL_ERROR)


@pytest.mark.proves("MQTT5-3.15.1-1", "MQTT5-2.1.3-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8])
def test_auth_with_reserved_flags_is_malformed(peer: Join, name: str, flags: int) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.auth(CONTINUE, METHOD, first=0xF0 | flags))
    client.expelled(MALFORMED)


@pytest.mark.proves("MQTT5-4.12.0-6")
def test_without_a_method_there_is_no_auth_and_no_method_in_connack(peer: Join, name: str) -> None:
    client = peer()
    connack = client.connect(name, user_name="u", password=b"p")
    assert connack.property("authentication_method") is None
    assert connack.property("authentication_data") is None
    client.quiet()


@pytest.mark.proves("MQTT5-4.13.1-1")
@pytest.mark.parametrize(
    ("items", "reason_code"),
    [(METHOD * 2, PROTOCOL_ERROR), (DATA, PROTOCOL_ERROR), ([("topic_alias", 1)], MALFORMED)],
)
def test_wrong_properties_of_auth_end_the_connection(
    peer: Join, name: str, items: list[Property], reason_code: int
) -> None:
    client = peer()
    client.connect(name)
    client.send(packets.auth(CONTINUE, items))
    client.expelled(reason_code)


@pytest.mark.proves("MQTT311-4.8.0-1", "MQTT311-2.2.2-1")
@pytest.mark.parametrize("version", [4, 3])
def test_old_versions_have_no_auth(peer: Join, name: str, version: int) -> None:
    client = peer(version)
    client.connect(name)
    client.send(packets.auth(CONTINUE, METHOD))
    assert client.is_closed()
