"""The log's files as `docs/formats/log.md` draws them, read without the kernel.

Owns: which record lies where. Never: trusts a checksum; it looks at files that are whole.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 96
RECORD_HEADER = struct.Struct("<IIBBHIQQQII")
MESSAGE, CONTROL, TOPIC, MARKER = 1, 2, 3, 4
KEY, PROPERTIES, EXPIRY, PACKET_IDENTIFIER = 1 << 3, 1 << 4, 1 << 5, 1 << 6
"""Flags of a record."""
TRAILER_BYTES = 108
TRAILER_MAGIC = b"HFFOOTER"


@dataclass(frozen=True, slots=True)
class Placed:
    """A record and where it lies."""

    start: int
    end: int
    kind: int
    offset: int
    entry: int


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment's file."""

    path: Path
    records: tuple[Placed, ...]
    sealed: bool
    base_position: int

    @property
    def used_end(self) -> int:
        """Where the records end."""
        return self.records[-1].end if self.records else HEADER_BYTES

    def vouched_end(self) -> int:
        """Up to here its own markers say that it was durable."""
        last = max((record.entry for record in self.records if record.kind == MARKER), default=0)
        return max(last - self.base_position + HEADER_BYTES, HEADER_BYTES)


def read(path: Path) -> SegmentFile:
    """The records of a whole file."""
    data = path.read_bytes()
    (base_position,) = struct.unpack_from("<Q", data, 44)
    return SegmentFile(path, tuple(records(data)), is_sealed(data), base_position)


def is_sealed(data: bytes) -> bool:
    """True if a whole file ends with a footer."""
    return data[-TRAILER_BYTES:].startswith(TRAILER_MAGIC)


def records(data: bytes) -> Iterator[Placed]:
    """The records of a whole file, up to the first whose size is damaged."""
    return _records(data, records_end(data))


def records_end(data: bytes) -> int:
    """Where the records of a file end, as its footer says if it has one; not behind that, whatever
    it says."""
    if not is_sealed(data):
        return len(data)
    trailer = len(data) - TRAILER_BYTES
    return min(int(struct.unpack_from("<I", data, trailer + 16)[0]), trailer)


def topic_and_payload(data: bytes, record: Placed) -> tuple[int, bytes]:
    """Of a message its topic's number and its payload; of a topic's record its number and name."""
    fields = RECORD_HEADER.unpack_from(data, record.start)
    flags, topic, at = fields[3], fields[5], record.start + RECORD_HEADER.size
    if flags & KEY:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    if flags & PROPERTIES:
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    at += 8 * bool(flags & EXPIRY) + 2 * bool(flags & PACKET_IDENTIFIER)
    return topic, data[at : record.end]


def _records(data: bytes, end: int) -> Iterator[Placed]:
    position = HEADER_BYTES
    while position + RECORD_HEADER.size <= end:
        fields = RECORD_HEADER.unpack_from(data, position)
        size, kind, offset, entry = fields[0], fields[2], fields[6], fields[7]
        if size < RECORD_HEADER.size or position + size > end:
            return
        yield Placed(position, position + size, kind, offset, entry)
        position += size


def files(log_directory: Path) -> list[SegmentFile]:
    """All segments that have records, the oldest first."""
    found = [read(path) for path in sorted(log_directory.glob("segment-*.log"))]
    return [file for file in found if file.records]
