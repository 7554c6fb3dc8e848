"""What a header of the PROXY protocol says, and which ones are refused."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.sockets.proxy_protocol import (
    FIXED_BYTES,
    Origin,
    ProxyHeaderError,
    is_trusted,
    parse_length,
    parse_origin,
)
from tests.builders.proxy_header import certificate, header, value


def parsed(data: bytes) -> Origin:
    assert FIXED_BYTES + parse_length(data[:FIXED_BYTES]) == len(data)
    return parse_origin(data)


@pytest.mark.parametrize(
    ("source", "peer"),
    [
        (("192.0.2.7", 4_711), "192.0.2.7:4711"),
        (("2001:db8::7", 4_711), "[2001:db8::7]:4711"),
        (None, None),
    ],
)
def test_a_header_names_the_peer(source: tuple[str, int] | None, peer: str | None) -> None:
    assert parsed(header(source)) == Origin(peer, None)


def test_the_proxy_itself_has_no_other_origin() -> None:
    assert parsed(header(command=0)) == Origin(None, None)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (certificate("Gerät 7".encode()), "Gerät 7"),
        (value(0x04, b"padding") + certificate(b"device"), "device"),
        (certificate(b"device", client=0x05), "device"),
        (certificate(b"device", verify=1), None),
        (certificate(b"device", client=0x01), None),
        (certificate(b"device", client=0x02), None),
        (value(0x20, b"\x01"), None),
        (value(0x02, b"example.test"), None),
    ],
    ids=["yes", "after others", "of the session", "not verified", "none", "no TLS", "cut", "other"],
)
def test_the_name_of_a_verified_certificate_is_taken(values: bytes, name: str | None) -> None:
    assert parsed(header(values=values)).certificate_name == name


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n", "send version 2"),
        (b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc", "does not begin with one"),
        (header()[:12] + b"\x31" + header()[13:], "version and command 0x31 are unknown"),
        (header()[:12] + b"\x22" + header()[13:], "version and command 0x22 are unknown"),
        (header(values=bytes(5_000)), "too many"),
    ],
)
def test_what_is_no_header_is_refused_before_more_is_read(data: bytes, sentence: str) -> None:
    with pytest.raises(ProxyHeaderError, match=sentence):
        parse_length(data[:FIXED_BYTES])


@pytest.mark.parametrize(
    "data",
    [
        header(None)[:13] + b"\x11" + header(None)[14:],
        header(values=b"\x20"),
        header(values=b"\x20\x00\x05ab"),
        header(values=certificate(b"\xff\xfe")),
    ],
    ids=["no addresses", "half a value", "a short value", "a name that is no text"],
)
def test_a_header_that_ends_too_early_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parsed(data)


@given(st.binary(max_size=300), st.sampled_from([0x20, 0x21]), st.integers(0, 255))
def test_any_header_is_understood_or_refused(body: bytes, command: int, family: int) -> None:
    head = header(None)[:12] + bytes([command, family]) + len(body).to_bytes(2, "big")
    try:
        parsed(head + body)
    except ProxyHeaderError:
        return


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        (("10.1.2.3", 1), True),
        (("11.1.2.3", 1), False),
        (("::1", 1, 0, 0), True),
        (("::ffff:10.1.2.3", 1, 0, 0), True),
        (("fe80::1%eth0", 1, 0, 2), False),
        ("", False),
        (None, False),
    ],
)
def test_only_the_addresses_that_were_named_are_believed(peer: object, trusted: bool) -> None:
    assert is_trusted(peer, [ip_network("10.0.0.0/8"), ip_network("::1")]) == trusted
