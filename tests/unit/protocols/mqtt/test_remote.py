"""What a client says in CONNECT, and what a CONNACK allows it."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.kernel import decode_packets, encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.mqtt.remote import (
    Granted,
    Refused,
    Wish,
    connect,
    read_connack,
    reason_told,
)

WISH = Wish(
    client_identifier="c",
    protocol_version=5,
    clean_start=False,
    keep_alive_s=60,
    session_expiry_s=3_600,
    receive_maximum=100,
    maximum_packet_size_bytes=1_000,
    topic_alias_maximum=10,
    user_name="u",
    password=b"secret",
)


def answered(code: int = 0, present: bool = False, **properties: Any) -> Granted | Refused:
    fields = {"session_present": present, "reason_code": code, "properties": properties}
    data = encode_packet("connack", fields, protocol_version=5)
    (packet,), _ = decode_packets(data, protocol_version=5, role="client")
    return read_connack(packet.fields, WISH)


def granted(**properties: Any) -> Granted:
    answer = answered(**properties)
    assert isinstance(answer, Granted)
    return answer


@pytest.mark.parametrize("version", [4, 5])
def test_connect_says_what_is_wished_in_each_version(version: int) -> None:
    fields = connect(replace(WISH, protocol_version=version))
    data = encode_packet(
        "connect", {**fields, "will": None, "protocol_version": version}, protocol_version=version
    )
    (packet,), _ = decode_packets(data, protocol_version=version, role="server")
    found = packet.fields
    assert (found["client_identifier"], found["clean_start"]) == ("c", False)
    assert (found["user_name"], found["password"]) == ("u", b"secret")
    asked = {
        "session_expiry_interval": 3_600,
        "receive_maximum": 100,
        "maximum_packet_size": 1_000,
        "topic_alias_maximum": 10,
    }
    assert found["properties"] == (asked if version == 5 else {})


def test_a_server_that_says_nothing_allows_what_the_protocol_does() -> None:
    answer = granted(present=True)
    assert answer.session_present
    assert (answer.receive_maximum, answer.maximum_qos, answer.topic_alias_maximum) == (
        65_535,
        2,
        0,
    )
    assert (answer.retain_available, answer.wildcards_available) == (True, True)
    assert (answer.keep_alive_s, answer.session_expiry_s) == (60, None)


def test_a_server_that_allows_less_is_heard() -> None:
    answer = granted(
        receive_maximum=3,
        maximum_qos=1,
        retain_available=0,
        maximum_packet_size=99,
        topic_alias_maximum=7,
        server_keep_alive=5,
        session_expiry_interval=10,
        assigned_client_identifier="other",
        wildcard_subscription_available=0,
    )
    assert (answer.receive_maximum, answer.maximum_qos, answer.topic_alias_maximum) == (3, 1, 7)
    assert (answer.retain_available, answer.wildcards_available) == (False, False)
    assert (answer.maximum_packet_size_bytes, answer.keep_alive_s) == (99, 5)
    assert (answer.session_expiry_s, answer.client_identifier) == (10, "other")


def test_who_begins_anew_has_no_session_whatever_the_server_says() -> None:
    fields = {"session_present": True, "reason_code": 0, "properties": {}}
    answer = read_connack(fields, replace(WISH, clean_start=True))
    assert isinstance(answer, Granted)
    assert not answer.session_present


@pytest.mark.parametrize(
    ("code", "lasts"),
    [
        (ReasonCode.SERVER_UNAVAILABLE, False),
        (ReasonCode.SERVER_BUSY, False),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, True),
        (ReasonCode.NOT_AUTHORIZED, True),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, True),
    ],
)
def test_a_refusal_says_whether_it_lasts(code: ReasonCode, lasts: bool) -> None:
    answer = answered(code, reason_string="go away")
    assert isinstance(answer, Refused)
    assert answer.lasts is lasts
    assert answer.reason.endswith(": go away")


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(WISH)


@pytest.mark.parametrize(
    ("code", "properties", "told"),
    [
        (0x9C, {"server_reference": "b:1883"}, "use_another_server (server reference: b:1883)"),
        (
            0x9D,
            {"reason_string": "for good", "server_reference": "b"},
            "server_moved: for good (server reference: b)",
        ),
        (0xA2, {}, "wildcard_subscriptions_not_supported"),
        (0xEE, {}, "0xee"),
    ],
)
def test_people_are_told_why_and_where_else(
    code: int, properties: dict[str, str], told: str
) -> None:
    assert reason_told({"reason_code": code, "properties": properties}) == told
