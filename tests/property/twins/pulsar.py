"""The twin of the codec of Pulsar's protocol: frames as clients write them, read by definition.

Owns: what a stream of frames says, one frame after the other, and where it breaks the protocol.
Never: fast, and never opens an entry: what an entry says of itself is read field by field.

Invariant: `decode` gives what the compiled inbox gives, except for the words of a fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.property.twins.entry import block, crc32c, number
from tests.property.twins.selection import murmur3_32

CONNECT, SEND, ACK, FLOW, PING, PONG, REDELIVER = 2, 6, 10, 11, 18, 19, 20
HANDED_OUT = {4, 5, 12, 15, 16, 21, 23, 25, 28, 29, 32, 34, 37, 39, 50, 52, 54, 56, 62, 64, 67}
"""What clients send and the inbox does not decide on."""

MAGIC = b"\x0e\x01"
LAST = 2**64 - 1
ENTRY_MESSAGES_MAXIMUM = 65_536
COMMAND_BYTES_MAXIMUM = 262_144

Fields = list[tuple[int, int | bytes]]


class FaultError(Exception):
    """The client broke the protocol."""


def refuse_if(wrong: object) -> None:
    """Raise a fault if something is wrong."""
    if wrong:
        raise FaultError


def framed(command: bytes, entry: bytes = b"") -> bytes:
    total = 4 + len(command) + len(entry)
    return total.to_bytes(4) + len(command).to_bytes(4) + command + entry


def command(kind: int, fields: bytes = b"") -> bytes:
    return number(1, kind) + block(kind, fields)


def message_id(ledger: int, entry: int, ack_set: tuple[int, ...] = ()) -> bytes:
    return number(1, ledger) + number(2, entry) + b"".join(number(5, word) for word in ack_set)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        refuse_if(at + index >= len(data))
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            refuse_if(value > LAST)
            return value, at + index + 1
    raise FaultError


def fields_of(data: bytes) -> Fields:
    """The fields of a message of Protobuf; what is written in four or eight bytes is left out."""
    found: Fields = []
    at = 0
    while at < len(data):
        tag, at = _integer(data, at)
        refuse_if(not 1 <= tag >> 3 < 2**29)
        form = tag & 7
        refuse_if(form not in {0, 1, 2, 5})
        if form == 0:
            value, at = _integer(data, at)
            found.append((tag >> 3, value))
            continue
        size = {1: 8, 5: 4}.get(form, 0)
        if form == 2:
            size, at = _integer(data, at)
        refuse_if(at + size > len(data))
        if form == 2:
            found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def integer(fields: Fields, wanted: int) -> int | None:
    """The last integer of this field."""
    values = [value for found, value in fields if found == wanted and isinstance(value, int)]
    return values[-1] if values else None


def blocks(fields: Fields, wanted: int) -> list[bytes]:
    return [value for found, value in fields if found == wanted and isinstance(value, bytes)]


@dataclass
class Decoded:
    """What a stream says."""

    entries: list[tuple[bytes, bytes, bool, tuple[int, int, int, int, int | None, int | None]]] = (
        field(default_factory=list)
    )
    settlements: list[tuple[str, list[int], int | None]] = field(default_factory=list)
    permits: list[int] = field(default_factory=list)
    pings: int = 0
    controls: list[tuple[int, bytes]] = field(default_factory=list)
    is_faulted: bool = False


@dataclass(frozen=True)
class Client:
    """An accepted connection."""

    topics: dict[int, bytes]
    """The topic of each of its producers."""
    closed: frozenset[int]
    """Producers that it had."""
    ledgers: dict[int, int]
    """The ledger of each of its consumers."""
    shared: frozenset[int]
    """Those of them that share their subscription."""
    frame_bytes_maximum: int


def frames(stream: bytes, maximum: int) -> Iterator[tuple[bytes, bytes]]:
    """The command and the tail of each whole frame."""
    at = 0
    while len(stream) - at >= 4:
        total = int.from_bytes(stream[at : at + 4])
        refuse_if(total <= 4)
        if len(stream) - at < 8:
            return
        size = int.from_bytes(stream[at + 4 : at + 8])
        refuse_if(size + 4 > total or total + 4 > maximum)
        end = at + 4 + total
        if len(stream) < end:
            return
        yield stream[at + 8 : at + 8 + size], stream[at + 8 + size : end]
        at = end


def decode(stream: bytes, client: Client) -> Decoded:
    """All of a stream, up to what is wrong."""
    decoded = Decoded()
    try:
        for found, tail in frames(stream, client.frame_bytes_maximum):
            _take(found, tail, client, decoded)
    except FaultError:
        decoded.is_faulted = True
    return decoded


def _take(data: bytes, tail: bytes, client: Client, decoded: Decoded) -> None:
    fields = fields_of(data)
    kind = integer(fields, 1)
    refuse_if(kind not in HANDED_OUT | {SEND, ACK, FLOW, PING, PONG, REDELIVER})
    assert kind is not None, "it is one of them"
    body = (blocks(fields, kind) or [b""])[-1]
    if kind == SEND:
        _send(fields_of(body), tail, client, decoded)
        return
    refuse_if(tail)
    if kind in {ACK, REDELIVER}:
        _settle(kind, fields_of(body), client, decoded)
    elif kind == FLOW:
        said = fields_of(body)
        consumer, messages = integer(said, 1), integer(said, 2)
        refuse_if(consumer is None or messages is None)
        if consumer in client.ledgers:
            decoded.permits.append((messages or 0) & 0xFFFFFFFF)
    elif kind == PING:
        decoded.pings += 1
    elif kind != PONG:
        refuse_if(len(data) > COMMAND_BYTES_MAXIMUM)
        decoded.controls.append((kind, data))


def _settle(kind: int, said: Fields, client: Client, decoded: Decoded) -> None:
    consumer, how, ids = integer(said, 1), "Again", blocks(said, 2)
    refuse_if(consumer is None)
    if kind == ACK:
        ack_types = [value for found, value in said if found == 2]
        refuse_if(not ack_types or ack_types[-1] not in {0, 1})
        refuse_if(integer(said, 6) is not None or integer(said, 7) is not None)
        how, ids = ("DoneUpTo" if ack_types[-1] else "Done"), blocks(said, 3)
    elif not ids:
        how = "AllAgain"
    if consumer not in client.ledgers:
        return
    refuse_if(how == "DoneUpTo" and consumer in client.shared)
    numbers = []
    for one in map(fields_of, ids):
        ledger, entry = integer(one, 1), integer(one, 2)
        refuse_if(ledger is None or entry is None)
        words = [value for found, value in one if found == 5]
        left = any(
            word if isinstance(word, int) else any(byte & 0x7F for byte in word) for word in words
        )
        if ledger == client.ledgers[consumer] and entry not in {None, LAST} and not left:
            numbers.append(entry or 0)
    decoded.settlements.append((how, numbers, integer(said, 8) if kind == ACK else None))


def _send(said: Fields, tail: bytes, client: Client, decoded: Decoded) -> None:
    producer, first = integer(said, 1), integer(said, 2)
    refuse_if(producer is None or first is None)
    refuse_if(integer(said, 4) is not None or integer(said, 5) is not None)
    if producer not in client.topics:
        refuse_if(producer not in client.closed)
        return
    assert producer is not None, "it is among them"
    assert first is not None, "refused above"
    messages, highest = integer(said, 3), integer(said, 6)
    if messages is not None:
        messages &= 0xFFFFFFFF
    if not tail.startswith(MAGIC):
        tail = MAGIC + crc32c(tail).to_bytes(4) + tail
    refuse_if(len(tail) < 6)
    is_damaged = tail[2:6] != crc32c(tail[6:]).to_bytes(4)
    count, key, not_before = 1, None, None
    if is_damaged:
        count = min(max(messages or 1, 1), ENTRY_MESSAGES_MAXIMUM)
    else:
        metadata, payload = _metadata(tail)
        count = _count(metadata, payload)
        refuse_if(messages is not None and messages != count)
        highest = integer(metadata, 24) if highest is None else highest
        keys = blocks(metadata, 18) or blocks(metadata, 6)
        key = keys[-1] if keys else None
        time_ms = integer(metadata, 19) or 0
        not_before = time_ms * 1_000 if 0 < time_ms < 2**63 else None
    if highest is None or highest < first:
        highest = min(first + count - 1, LAST)
    if not_before is not None:
        not_before = min(not_before, LAST)
    key_hash = None if key is None else murmur3_32(key)
    parts = (producer, first, highest, count, key_hash, not_before)
    decoded.entries.append((client.topics[producer], tail, is_damaged, parts))


def _metadata(tail: bytes) -> tuple[Fields, bytes]:
    refuse_if(len(tail) < 10)
    end = 10 + int.from_bytes(tail[6:10])
    refuse_if(end > len(tail))
    fields = fields_of(tail[10:end])
    refuse_if(not blocks(fields, 1) or integer(fields, 2) is None or integer(fields, 3) is None)
    refuse_if((integer(fields, 8) or 0) > 4)
    for pair in map(fields_of, blocks(fields, 4)):
        refuse_if(not blocks(pair, 1) or not blocks(pair, 2))
    return fields, tail[end:]


def _count(metadata: Fields, payload: bytes) -> int:
    """A batch has at least the four bytes of a size for each of its messages."""
    said = integer(metadata, 11)
    if said is None:
        return 1
    is_packed = (integer(metadata, 8) or 0) != 0
    size = (integer(metadata, 9) or 0) & 0xFFFFFFFF if is_packed else len(payload)
    count = said & 0xFFFFFFFF
    refuse_if(not 1 <= count <= ENTRY_MESSAGES_MAXIMUM or 4 * count > size)
    return count
