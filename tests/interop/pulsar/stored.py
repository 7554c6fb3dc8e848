"""Entries as a broker's log has them, read from its files without the kernel.

Owns: what a stored entry says of itself. Never: opens an entry.
"""

from holdfast.core.layout import LOG_DIRECTORY
from tests.builders.entries import MAGIC, metadata_of
from tests.crash import segments
from tests.process import BrokerProcess

ENTRY = 5
"""A record's kind."""
COMPRESSION = 8
"""A field of metadata; what is not compressed has none, or 0."""
ENVELOPE_BYTES = 17
KEY_HASH, NOT_BEFORE = 1 << 0, 1 << 1
"""Flags of an envelope; the first has 4 bytes, the second 8."""


def metadata_by(broker: BrokerProcess, producer: str) -> list[dict[int, int | bytes]]:
    """The metadata of all stored entries of the producer with this name, the oldest first."""
    found = []
    for path in sorted((broker.data_directory / LOG_DIRECTORY).glob("segment-*.log")):
        data = path.read_bytes()
        entries = (record for record in segments.records(data) if record.kind == ENTRY)
        found += [metadata_of(_entry(data, record)) for record in entries]
    return [metadata for metadata in found if metadata[1] == producer.encode()]


def _entry(data: bytes, record: segments.Placed) -> bytes:
    _, payload = segments.topic_and_payload(data, record)
    flags = payload[0]
    entry = payload[ENVELOPE_BYTES + 4 * bool(flags & KEY_HASH) + 8 * bool(flags & NOT_BEFORE) :]
    assert entry.startswith(MAGIC), "an entry begins with its magic bytes"
    return entry
