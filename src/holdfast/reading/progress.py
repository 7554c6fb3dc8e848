"""When a queue was done with what it had to deliver: its progress as the log has it on record.

Owns: which parties a name stands for, and how an answer becomes rows and is handed over.
Never: adds one record to another; a row says what its record says.

Invariant: what is told of a range of offsets is told by records that lie before messages of that
range, so that it is the same whenever it is asked for, as long as the log has them.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.core.subscription import IN_FORCE
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import UnreadableLogError
from holdfast.reading.recorded import RecordedMoment

if TYPE_CHECKING:
    # A broker begins without it (`reading.log` says why).
    import pyarrow as pa

ROWS_MAXIMUM: Final = 65_536
"""Rows of one answer, some more where a record has many: two or three megabytes."""
COLUMNS: Final = {
    "party": "uint32",
    "before": "uint64",
    "at": "uint64",
    "begin": "uint64",
    "end": "uint64",
}
"""Whose record it is, the next message behind it, its append time, and a range that is done; below
`end` all is where `begin` is 0."""
TOLD: Final = b"told"


class NoSuchQueueError(UnreadableLogError):
    """No queue on record is called so."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a queue gets: messages that a filter matches, between two offsets."""

    topic_filter: str
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class Consumer:
    """A queue, and what it was to deliver."""

    party: int
    queue: str
    created_at_offset: int
    reads: tuple[Reads, ...]
    lost: tuple[tuple[int, int], ...]
    """Ranges of offsets that it was done with without a delivery, as the loss ledger has them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Some of what records say of queues."""

    consumers: tuple[Consumer, ...]
    rows: "pa.RecordBatch"
    next_number: int | None
    """The control record at which to go on; `None`: that was all."""
    log_begin: int
    """The records of queues begin here, as messages do: older ones went with their segments."""

    def told(self) -> "pa.RecordBatch":
        """The rows, which say the rest beside them."""
        about = {
            "consumers": [asdict(each) for each in self.consumers],
            "next_number": self.next_number,
            "log_begin": self.log_begin,
        }
        return self.rows.replace_schema_metadata({TOLD: json.dumps(about)})


class ProgressOfQueues(Protocol):
    """Where progress can be asked for."""

    def progress(self, queue: str, begin: int, end: int, number: int) -> Progress:
        """Of the queues with this name, by records that lie before messages from `begin` to before
        `end`, from a control number on. Raises `NoSuchQueueError`."""


def told_of(batch: "pa.RecordBatch") -> Progress:
    """What `Progress.told` has made such a batch of."""
    about = json.loads(batch.schema.metadata[TOLD])
    return Progress(
        tuple(_consumer(each) for each in about["consumers"]),
        batch.replace_schema_metadata(),
        about["next_number"],
        about["log_begin"],
    )


def done_at_us(log: LogDirectory, party: int, offsets: Sequence[int]) -> dict[int, int]:
    """When a party was done with messages, given in ascending order: the time of the first record
    that covers each. Without those that lie before the log begins, whose records may be gone, and
    those that no record covers which lies before a stored message."""
    found: dict[int, int] = {}
    left = list(offsets[bisect_left(offsets, log.extent().begin) :])
    begin, number = (left[0], 0) if left else (0, None)
    while number is not None and left:
        rows, number = log.progress([party], begin, IN_FORCE, number, ROWS_MAXIMUM)
        columns = (memoryview(rows[name]).cast("Q") for name in ("at", "begin", "end"))
        for at_us, first, end in zip(*columns, strict=True):
            covered = slice(bisect_left(left, first), bisect_left(left, end))
            found |= dict.fromkeys(left[covered], at_us)
            del left[covered]
    return found


def parts(asked: ProgressOfQueues, queue: str, begin: int, end: int) -> Iterator[Progress]:
    """All that records say, answer by answer."""
    number: int | None = 0
    while number is not None:
        part = asked.progress(queue, begin, end, number)
        yield part
        number = part.next_number


class DirectoryProgress:
    """Progress as a data directory has it."""

    def __init__(self, log: LogDirectory, moment: Callable[[], RecordedMoment]) -> None:
        self._log = log
        self._moment = moment

    def progress(self, queue: str, begin: int, end: int, number: int) -> Progress:
        """Of the queues with this name, by records that lie before messages from `begin` to before
        `end`, from a control number on. Raises `NoSuchQueueError`."""
        parties = list(self._parties(queue))
        columns, next_number = self._log.progress(parties, begin, end, number, ROWS_MAXIMUM)
        # After the records: a loss is on record before the progress that passes over it.
        found = self._recorded(queue, with_losses=columns["rows"] > 0)
        consumers = tuple(map(_consumer, found))
        return Progress(consumers, _batch(columns), next_number, self._log.extent().begin)

    def _parties(self, queue: str) -> Sequence[int]:
        found = self._recorded(queue, with_losses=False)
        if not found:
            raise NoSuchQueueError(
                f"no queue on record is called {queue!r}; a session that ends with its connection"
                " has none"
            )
        return [each["party"] for each in found]

    def _recorded(self, queue: str, *, with_losses: bool) -> list[dict[str, Any]]:
        recorded = self._moment()
        try:
            return recorded.consumers(queue, with_losses=with_losses)
        finally:
            recorded.close()


def _consumer(told: dict[str, Any]) -> Consumer:
    reads = tuple(
        Reads(each["topic_filter"], each["from_offset"], each.get("until_offset", IN_FORCE))
        for each in told["reads"]
    )
    lost = tuple((begin, end) for begin, end in told["lost"])
    return Consumer(told["party"], told["queue"], told["created_at_offset"], reads, lost)


def _batch(columns: dict[str, Any]) -> "pa.RecordBatch":
    import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

    arrays = {
        name: pa.Array.from_buffers(
            pa.type_for_alias(kind), columns["rows"], [None, pa.py_buffer(columns[name])]
        )
        for name, kind in COLUMNS.items()
    }
    return pa.RecordBatch.from_pydict(arrays)
