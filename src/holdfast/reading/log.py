"""What can be read, whoever holds it: the extent of a log, ranges of it, and the ways in which
reading fails.

Owns: the interface of a readable log, and the loop that reads a range in bounded batches.
Never: knows whether the log is a directory or a broker.

Invariants:
1. Ranges are half open: `begin` is read, `end` is not.
2. `chunks` and `batches` return each matching message of their range exactly once, in offset order,
   or raise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.reading.criteria import Criteria

if TYPE_CHECKING:
    # A broker begins without it: it takes as long to import as all the rest.
    import pyarrow as pa

COLUMNS = (
    *("topic", "key", "value", "shard", "offset", "entry", "timestamp", "event_time", "qos"),
    *("retain", "publisher", "expires_at", "properties", "headers"),
)
"""Every column that can be read, in its order; `columns` knows their types."""
COLUMNS_UNASKED = COLUMNS[:-1]
"""What a reader gets that names no columns: `headers` tells again what `properties` tells."""
BATCH_ROWS_MAXIMUM = 65_536
"""Spark's throughput no longer grows beyond 64k rows a batch, and falls below 10k."""
BATCH_BYTES_MAXIMUM = 8 << 20
"""An answer costs the broker a millisecond or two beside its bytes: with 4 MiB the broker took 0.61
to 0.69 us of processor time a row of 340 bytes, with this 0.51, with 16 MiB 0.47. A reader holds
two, the one it is at and the one that is on its way."""


class UnreadableLogError(Exception):
    """The log cannot be read at all: no broker there, no log in the directory, an answer that is
    none."""


class BrokerAwayError(UnreadableLogError):
    """The broker does not answer, or only that it is not ready: it may be back in a moment."""


class LogChangedError(UnreadableLogError):
    """The broker has another log than before: its offsets mean other messages."""


class RecordsGoneError(Exception):
    """Retention has taken the first part of what was asked for: offsets `begin` up to
    `available_from`."""

    def __init__(self, begin: int, available_from: int) -> None:
        super().__init__(
            f"offsets {begin} to {available_from - 1} have been removed by retention; "
            f"the log begins at offset {available_from}"
        )
        self.begin = begin
        self.available_from = available_from

    def __reduce__(self) -> tuple[type["RecordsGoneError"], tuple[int, int]]:
        return RecordsGoneError, (self.begin, self.available_from)


@dataclass(frozen=True, slots=True)
class Extent:
    """Which log it is, and which offsets of it can be read now."""

    epoch: str
    begin: int
    end: int
    """The durable end: the offset that the next durable message will have."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of one read, the offset at which the next read goes on, and whose they are."""

    batch: "pa.RecordBatch"
    next_offset: int
    epoch: str
    """Of the log that was read."""
    missing: int = 0
    """Messages before `next_offset` that the disk has damaged, as far as was found. Nobody can say
    which topics they had."""


def damage_text(begin: int, end: int, missing: int) -> str:
    """What there is to say of messages of a range that the disk has damaged."""
    return (
        f"of offsets {begin} to {end - 1} the disk has damaged {missing}, whose topics cannot be"
        " told any more; `holdfast log verify` names the places"
    )


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a range reaches, and the extent of the log at the same moment."""

    extent: Extent
    end: int
    rows: int
    """Messages of its topics in the range; about as many as match where more than topics is
    asked."""
    next_at_us: int | None
    """When the first message behind the range was stored, of whatever topic; `None` at the durable
    end."""
    now_us: int
    """The time then, by the clock of the machine that the log is on."""
    behind: int
    """Messages of its topics from the end of the range to the durable end; at least so many where
    not all of these were counted."""
    behind_exact: bool
    before_at_us: int | None = None
    """When the message just before the range was stored, and ..."""
    last_at_us: int | None = None
    """... its last one, of whatever topic; `None` of one that is not there any more."""
    taken: int = 0
    """Offsets that retention took before this reader had read them, as far as a broker knows."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a read is asked for: matching messages from `begin` on and before `end`, up to a number
    of rows and bytes."""

    criteria: Criteria
    begin: int
    end: int
    columns: tuple[str, ...] | None = None
    """In this order; `None` is `COLUMNS_UNASKED`."""
    rows_maximum: int = BATCH_ROWS_MAXIMUM
    bytes_maximum: int = BATCH_BYTES_MAXIMUM


class ReadableLog(Protocol):
    """A log that can be read by offset."""

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""

    def reach(
        self,
        criteria: Criteria,
        begin: int | None,
        end: int | None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """The end of a range with so many matching messages, or about so many bytes of them, `end`
        at most: without it, the durable end. Without a beginning, the log's."""

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range: at most `parts`, unless each may have
        no more than so many rows."""

    def read(self, question: Question) -> Chunk:
        """Raises `RecordsGoneError` if retention has taken its `begin`."""


def chunks(
    log: ReadableLog,
    criteria: Criteria,
    begin: int,
    end: int,
    *,
    columns: Sequence[str] | None = None,
) -> Iterator[Chunk]:
    """The matching messages of a range, read by read; some of them may have none."""
    names = None if columns is None else tuple(columns)
    while begin < end:
        chunk = log.read(Question(criteria, begin, end, names))
        yield chunk
        if chunk.next_offset <= begin:
            raise UnreadableLogError(
                f"reading stopped at offset {begin}, before the end of the range at {end}"
            )
        begin = chunk.next_offset


def batches(
    log: ReadableLog,
    criteria: Criteria,
    begin: int,
    end: int,
    *,
    columns: Sequence[str] | None = None,
) -> Iterator["pa.RecordBatch"]:
    """The same, batch by batch, none of them empty."""
    for chunk in chunks(log, criteria, begin, end, columns=columns):
        if chunk.batch.num_rows:
            yield chunk.batch
