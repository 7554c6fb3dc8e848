"""Whatever is larger, deeper or more than is taken is refused with its reason, and hurts nobody
else."""

import struct
from collections.abc import Iterator

import pytest

from holdfast.kernel import LIMITS
from tests.interop.wire import Wire
from tests.process import BrokerProcess

QUOTA_EXCEEDED, TOPIC_FILTER_INVALID = 0x97, 0x8F
LEVELS = LIMITS["topic_levels_maximum"]


@pytest.fixture
def wire(shared_broker: BrokerProcess, prefix: str) -> Iterator[Wire]:
    """A connected client; afterwards another one still connects and is answered."""
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, clean_start=True)
        yield wire
    with Wire(shared_broker.port) as other:
        other.connect(f"{prefix}-other", clean_start=True, session_expiry_interval=0)
        other.send("pingreq")
        other.receive("pingresp")


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, low = divmod(size, 128)
        length += bytes([low | (128 if size else 0)])
        if not size:
            return bytes([first]) + length + body


def _text(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def _subscribe(filters: list[bytes]) -> bytes:
    return _packet(0x82, b"\x00\x01\x00" + b"".join(_text(name) + b"\x01" for name in filters))


def _ended_with(wire: Wire, reason_code: int) -> None:
    assert wire.receive("disconnect")["reason_code"] == reason_code
    assert wire.next_packet() is None


def test_a_filter_that_is_too_deep_is_refused_and_the_session_comes_back(
    wire: Wire, shared_broker: BrokerProcess, prefix: str
) -> None:
    deepest, deeper = b"/".join([b"+"] * LEVELS), b"/".join([b"+"] * (LEVELS + 1))
    wire.send_bytes(_subscribe([deepest, deeper]))
    assert wire.receive("suback")["reason_codes"] == [1, TOPIC_FILTER_INVALID]
    with Wire(shared_broker.port) as again:
        assert again.connect(prefix)["session_present"] is True


def test_the_longest_topic_of_the_most_levels_arrives(wire: Wire, prefix: str) -> None:
    topic = f"{prefix}/".ljust(65_535, "/")
    assert wire.subscribe(f"{prefix}/#") == [1]
    wire.publish(topic, b"far", qos=1, identifier=7)
    assert wire.receive("puback")["reason_code"] == 0
    assert wire.receive("publish")["topic_name"] == topic


def test_filters_of_a_session_have_a_maximum_of_bytes(
    wire: Wire, shared_broker: BrokerProcess, prefix: str
) -> None:
    codes = []
    for start in range(0, 30, 10):
        long = [f"{number:05}/".encode().ljust(65_000, b"x") for number in range(start, start + 10)]
        wire.send_bytes(_subscribe(long))
        codes += wire.receive("suback")["reason_codes"]
    assert codes == [1] * 16 + [QUOTA_EXCEEDED] * 14
    with Wire(shared_broker.port) as again:
        assert again.connect(prefix)["session_present"] is True


@pytest.mark.parametrize("first", [0x82, 0xA2], ids=["SUBSCRIBE", "UNSUBSCRIBE"])
def test_a_packet_with_too_many_filters_is_refused(wire: Wire, first: int) -> None:
    item = _text(b"a") + (b"\x00" if first == 0x82 else b"")
    wire.send_bytes(
        _packet(first, b"\x00\x01\x00" + item * (LIMITS["filters_per_packet_maximum"] + 1))
    )
    _ended_with(wire, QUOTA_EXCEEDED)


def test_a_packet_with_as_many_filters_as_may_be_is_answered(wire: Wire) -> None:
    most = LIMITS["filters_per_packet_maximum"]
    wire.send_bytes(_packet(0xA2, b"\x00\x01\x00" + _text(b"a") * most))
    assert len(wire.receive("unsuback")["reason_codes"]) == most


def test_a_packet_with_too_many_user_properties_is_refused(wire: Wire) -> None:
    pair = b"\x26" + _text(b"k") + _text(b"v")
    most = LIMITS["user_properties_maximum"]

    def publish(count: int) -> bytes:
        size = count * len(pair)
        length = bytes([size % 128 | 128, size // 128])
        return _packet(0x32, _text(b"t") + b"\x00\x01" + length + pair * count)

    wire.send_bytes(publish(most))
    assert wire.receive("puback")["reason_code"] == 0
    wire.send_bytes(publish(most + 1))
    _ended_with(wire, QUOTA_EXCEEDED)


def test_65_535_user_properties_in_connect_are_refused(shared_broker: BrokerProcess) -> None:
    pair = b"\x26\x00\x00\x00\x00"
    size = 50_000 * len(pair)  # CONNECT may have 262 144 bytes.
    length = bytes([size % 128 | 128, size // 128 % 128 | 128, size // 16_384])
    with Wire(shared_broker.port) as wire:
        head = _text(b"MQTT") + b"\x05\x02\x00\x3c"
        wire.send_bytes(_packet(0x10, head + length + pair * 50_000 + _text(b"abc")))
        assert wire.receive("connack")["reason_code"] == QUOTA_EXCEEDED
