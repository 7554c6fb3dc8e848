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
    sealed = data[-TRAILER_BYTES:].startswith(TRAILER_MAGIC)
    (base_position,) = struct.unpack_from("<Q", data, 44)
    end = len(data)
    if sealed:
        _version, _number, end = struct.unpack_from("<III", data, len(data) - TRAILER_BYTES + 8)
    return SegmentFile(path, tuple(_records(data, end)), sealed, base_position)


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
