"""The twin of the kernel's entries: written as producers write them, read by definition.

Owns: how the metadata of an entry and of a message in a batch is written, and what a message of an
entry is to who gets messages. Never: fast, and never takes apart what it has not written itself
but for single fields. Invariant: compression and checksums are not the kernel's own code.
"""

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tests.property.twins.ranges import encode_integer
from tests.property.twins.selection import murmur3_32

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
CODECS = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}

RESERVED = {
    "mqtt-payload-format-indicator": 0x01,
    "mqtt-content-type": 0x03,
    "mqtt-response-topic": 0x08,
    "mqtt-correlation-data": 0x09,
}
"""Names that stand for a property of MQTT, in the order in which it is written."""


@dataclass(frozen=True)
class Message:
    """What a producer says in one message."""

    payload: bytes = b""
    properties: tuple[tuple[str, str], ...] = ()
    key: bytes | None = None
    key_is_bytes: bool = False
    """Its key is written in Base64."""
    ordering_key: bytes | None = None
    event_time_ms: int = 0
    is_null: bool = False

    @property
    def written_key(self) -> bytes | None:
        return base64.b64encode(self.key) if self.key and self.key_is_bytes else self.key


def number(field: int, value: int) -> bytes:
    return encode_integer(field << 3) + encode_integer(value)


def block(field: int, value: bytes) -> bytes:
    return encode_integer(field << 3 | 2) + encode_integer(len(value)) + value


def pair(field: int, name: str, value: str) -> bytes:
    return block(field, block(1, name.encode()) + block(2, value.encode()))


def crc32c(data: bytes) -> int:
    """CRC-32C by definition, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def compressed(way: int, data: bytes) -> bytes:
    if way == ZLIB:
        return zlib.compress(data)
    return pa.compress(data, codec=CODECS[way], asbytes=True) if way else data


def tail(metadata: bytes, payload: bytes) -> bytes:
    """An entry from the bytes on that say that it has a checksum."""
    checked = len(metadata).to_bytes(4) + metadata + payload
    return b"\x0e\x01" + crc32c(checked).to_bytes(4) + checked


def metadata(message: Message, way: int, size: int, count: int | None) -> bytes:
    """Of an entry whose first message this is; `count` is None for a message by itself."""
    written = block(1, b"producer") + number(2, 7) + number(3, 1_700_000_000_000)
    if count is None:
        written += b"".join(pair(4, *said) for said in message.properties)
    if message.written_key is not None:
        written += block(6, message.written_key)
    if way:
        written += number(8, way) + number(9, size)
    if count is not None:
        written += number(11, count)
    if count is None and message.event_time_ms:
        written += number(12, message.event_time_ms)
    if message.key_is_bytes:
        written += number(17, 1)
    if message.ordering_key is not None:
        written += block(18, message.ordering_key)
    if count is None and message.is_null:
        written += number(25, 1)
    return written


def in_batch(message: Message) -> bytes:
    """A message in a batch: the size of its metadata, its metadata, its payload."""
    written = b"".join(pair(1, *said) for said in message.properties)
    if message.written_key is not None:
        written += block(2, message.written_key)
    written += number(3, len(message.payload))
    if message.event_time_ms:
        written += number(5, message.event_time_ms)
    if message.key_is_bytes:
        written += number(6, 1)
    if message.is_null:
        written += number(9, 1)
    return len(written).to_bytes(4) + written + message.payload


def single(message: Message, way: int) -> bytes:
    said = metadata(message, way, len(message.payload), None)
    return tail(said, compressed(way, message.payload))


def batch(messages: list[Message], way: int) -> bytes:
    payload = b"".join(in_batch(message) for message in messages)
    said = metadata(messages[0], way, len(payload), len(messages))
    return tail(said, compressed(way, payload))


def key_hash(message: Message) -> int | None:
    key = message.key if message.ordering_key is None else message.ordering_key
    return None if key is None else murmur3_32(key)


def field(value: bytes) -> bytes:
    return len(value).to_bytes(2) + value


def user_properties(said: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(b"\x26" + field(name.encode()) + field(value.encode()) for name, value in said)


def standing_for(identifier: int, value: str) -> bytes | None:
    """What a reserved name says, if it can."""
    if identifier == 0x01:
        return bytes([1, int(value)]) if value in ("0", "1") else None
    if identifier == 0x08 and (not value or set(value) & set("+#")):
        return None
    if identifier == 0x09:
        try:
            data = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except ValueError:
            return None
        text = base64.b64encode(data).decode()
        return b"\x09" + field(data) if value in (text, text.rstrip("=")) else None
    return bytes([identifier]) + field(value.encode())


def opened(
    message: Message,
) -> tuple[bytes, bytes, bytes | None, int | None, bool, bool]:
    """What a message of an entry is to who gets messages."""
    left = list(message.properties)
    travelling = b""
    for reserved, identifier in RESERVED.items():
        first = next((said for said in left if said[0] == reserved), None)
        if first and (stands := standing_for(identifier, first[1])) is not None:
            travelling += stands
            left.remove(first)
    first = next((said for said in left if said[0] == "mqtt-retain"), None)
    if retain := first is not None and first[1] == "true":
        left.remove(("mqtt-retain", "true"))
    if message.key is not None:
        try:
            text = message.key.decode()
        except ValueError:
            text = "\0"
        if "\0" in text:
            text = (message.written_key or b"").decode()
        left.append(("pulsar-key", text))
    if message.event_time_ms:
        left.append(("pulsar-event-time", str(message.event_time_ms)))
    if message.is_null:
        left.append(("pulsar-null-value", "true"))
    return (
        travelling + user_properties(left),
        b"" if message.is_null else message.payload,
        message.key,
        message.event_time_ms * 1_000 or None,
        retain,
        message.is_null,
    )


@dataclass(frozen=True)
class Publication:
    """A message of MQTT, with what travels with it."""

    payload: bytes
    user: tuple[tuple[str, str], ...] = ()
    format_indicator: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    retain: bool = False

    def travelling(self) -> bytes:
        written = b""
        if self.format_indicator is not None:
            written += bytes([1, self.format_indicator])
        for identifier, text in ((3, self.content_type), (8, self.response_topic)):
            if text is not None:
                written += bytes([identifier]) + field(text.encode())
        if self.correlation_data is not None:
            written += b"\x09" + field(self.correlation_data)
        return written + user_properties(self.user)


def of_message(
    said: Publication, *, appended_at_us: int, producer_name: bytes, sequence: int
) -> bytes:
    """A message of MQTT as an entry."""
    values = (
        None if said.format_indicator is None else str(said.format_indicator),
        said.content_type,
        said.response_topic,
        None if said.correlation_data is None else base64.b64encode(said.correlation_data).decode(),
    )
    named = [
        (name, value) for name, value in zip(RESERVED, values, strict=True) if value is not None
    ]
    named += said.user
    if said.retain:
        named.append(("mqtt-retain", "true"))
    written = block(1, producer_name) + number(2, sequence) + number(3, appended_at_us // 1_000)
    return tail(written + b"".join(pair(4, *pairs) for pairs in named), said.payload)
