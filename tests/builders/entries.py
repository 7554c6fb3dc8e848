"""Frames of Pulsar clients that hold entries, as their producers make them, and what is in frames
that come back.

    frame = send(1, 7, entry([b"a", b"b"]))          a SEND of producer 1 with sequence id 7

Owns: the few fields that tests need. Never: uses the kernel, whose decoders these frames are for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, reflected."""
MAGIC = b"\x0e\x01"
SEND, SEND_RECEIPT, SEND_ERROR, MESSAGE, ACK, FLOW = 6, 7, 8, 9, 10, 11
PONG, REDELIVER, ACK_RESPONSE = 19, 20, 38
CUMULATIVE = 1
PROPERTY = 4
"""A field of metadata, of which there may be many."""


def entry(
    payloads: Sequence[bytes],
    *,
    batch: bool = True,
    producer: bytes = b"p",
    sequence: int = 0,
    besides: Sequence[tuple[int, int | bytes]] = (),
) -> bytes:
    """What stands behind SEND: one message that is no batch, or several; `besides` are further
    fields of its metadata."""
    fields: list[tuple[int, int | bytes]] = [(1, producer), (2, sequence)]
    fields += [(3, 1_800_000_000_000), *besides]
    if batch:
        fields.append((11, len(payloads)))
        body = b"".join(map(_in_batch, payloads))
    else:
        (body,) = payloads
    metadata = message(*fields)
    checked = len(metadata).to_bytes(4, "big") + metadata + body
    return MAGIC + crc32c(checked).to_bytes(4, "big") + checked


def metadata_of(tail: bytes) -> dict[int, int | bytes]:
    """The fields of an entry's metadata."""
    size = int.from_bytes(tail[6:10], "big")
    return dict(split(tail[10 : 10 + size]))


def properties_of(tail: bytes) -> list[tuple[str, str]]:
    """The properties of an entry that is no batch, in order."""
    size = int.from_bytes(tail[6:10], "big")
    pairs = (value for number, value in split(tail[10 : 10 + size]) if number == PROPERTY)
    return [_text_pair(pair) for pair in pairs]


def payloads_of(tail: bytes) -> list[bytes]:
    """The payloads of what `entry` has made."""
    size = int.from_bytes(tail[6:10], "big")
    body = tail[10 + size :]
    if 11 not in metadata_of(tail):
        return [body]
    found, position = [], 0
    while position < len(body):
        end = position + 4 + int.from_bytes(body[position : position + 4], "big")
        payload_bytes = dict(split(body[position + 4 : end]))[3]
        assert isinstance(payload_bytes, int)
        found.append(body[end : end + payload_bytes])
        position = end + payload_bytes
    return found


def send(producer: int, sequence: int, tail: bytes, messages: int = 1) -> bytes:
    """A SEND."""
    fields = [(1, producer), (2, sequence)]
    if messages > 1:
        fields.append((3, messages))
    return frame(SEND, message(*fields), tail)


def flow(consumer: int, permits: int) -> bytes:
    """A FLOW."""
    return frame(FLOW, message((1, consumer), (2, permits)))


def acknowledge(
    consumer: int, *ids: tuple[int, int], up_to: bool = False, request: int | None = None
) -> bytes:
    """An ACK of entries, each by its ledger and its number."""
    fields: list[tuple[int, int | bytes]] = [(1, consumer), (2, CUMULATIVE if up_to else 0)]
    fields += [(3, message((1, ledger), (2, number))) for ledger, number in ids]
    if request is not None:
        fields.append((8, request))
    return frame(ACK, message(*fields))


def redeliver(consumer: int, *ids: tuple[int, int]) -> bytes:
    """A REDELIVER_UNACKNOWLEDGED_MESSAGES."""
    named = [(2, message((1, ledger), (2, number))) for ledger, number in ids]
    return frame(REDELIVER, message((1, consumer), *named))


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the kernel's."""

    kind: int
    fields: dict[int, int | bytes]
    tail: bytes

    @property
    def message_id(self) -> tuple[int, int]:
        """Ledger and entry of a MESSAGE, or of a receipt."""
        named = self.fields[2 if self.kind == MESSAGE else 3]
        assert isinstance(named, bytes)
        ids = dict(split(named))
        ledger, number = ids[1], ids[2]
        assert isinstance(ledger, int)
        assert isinstance(number, int)
        return ledger, number


def read_frame(data: bytes, size: int) -> Frame:
    """The frame whose command has `size` bytes, and what stands behind that."""
    base = dict(split(data[:size]))
    kind = base[1]
    assert isinstance(kind, int)
    body = base.get(kind, b"")
    assert isinstance(body, bytes)
    return Frame(kind, dict(split(body)), data[size:])


def frame(kind: int, body: bytes, tail: bytes = b"") -> bytes:
    """A command with a payload behind it."""
    base = message((1, kind), (kind, body))
    total = 4 + len(base) + len(tail)
    return total.to_bytes(4, "big") + len(base).to_bytes(4, "big") + base + tail


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of Protocol Buffers with these fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint(number << 3), varint(value)]
        else:
            parts += [varint(number << 3 | 2), varint(len(value)), value]
    return b"".join(parts)


def varint(value: int) -> bytes:
    """A number of Protocol Buffers."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def split(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, by number."""
    position = 0
    while position < len(data):
        key, position = _number(data, position)
        value, position = _number(data, position)
        if key & 7 == 2:
            yield key >> 3, data[position : position + value]
            position += value
        else:
            yield key >> 3, value


def crc32c(data: bytes) -> int:
    """The checksum of entries."""
    state = 0xFFFFFFFF
    for byte in data:
        state = _TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return table


_TABLE = _table()


def _in_batch(payload: bytes) -> bytes:
    metadata = message((3, len(payload)))
    return len(metadata).to_bytes(4, "big") + metadata + payload


def _text_pair(pair: int | bytes) -> tuple[str, str]:
    assert isinstance(pair, bytes)
    name, value = (text for _, text in split(pair) if isinstance(text, bytes))
    return name.decode(), value.decode()


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
