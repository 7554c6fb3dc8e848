"""What each task reads: ranges of offsets, how they are planned, and the reading of one.

Owns: how options and an extent become ranges, and what is said of records that are gone.

Invariants:
1. A range is (epoch, begin, end), all absolute: read again, on any machine, it gives the same
   rows.
2. Rows of another log are never taken for those of a range: each answer says which log it is of.
3. Rows that retention has taken, or the disk damaged, raise under `failOnDataLoss`, and are told in
   a warning without it.
"""

import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.pipeline.parcel import Parcel
from holdfast.pipeline.source.columns import READ_COLUMNS
from holdfast.pipeline.source.forms import Boundary, OptionError
from holdfast.pipeline.source.log import open_ahead
from holdfast.pipeline.source.offsets import DataLossError, check_epoch
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.patience import BATCH_PATIENCE_S
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import (
    BATCH_ROWS_MAXIMUM,
    Chunk,
    Extent,
    ReadableLog,
    RecordsGoneError,
    UnreadableLogError,
    chunks,
    damage_text,
)

CORES = 2
"""Partitions where `minPartitions` does not say: one a core, each further one costs 30 ms."""
SMALL_RANGE = BATCH_ROWS_MAXIMUM
"""A micro-batch of one Arrow batch is not worth a second task."""

PLAN = "the plan of this query"

_READ_NAMES = {name.lower(): read_name for name, (read_name, _kind) in READ_COLUMNS.items()}

log = logging.getLogger(__name__)


class ReadError(Exception):
    """A task could not read its range."""


@dataclass(frozen=True)
class LogRange(InputPartition):
    """What one task reads."""

    epoch: str
    begin: int
    end: int
    criteria: Criteria | None = None
    """In place of what the options say, where that was narrowed."""


class RangeReader(Parcel):
    """Reads a partition on an executor; what batch and stream have in common."""

    patience_s = BATCH_PATIENCE_S

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises `OptionError` for a schema that somebody else has made, with other columns."""
        self.options = options
        self._schema = schema
        self._columns = [_read_name(name) for name in schema.names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches."""
        assert isinstance(partition, LogRange)
        leave_what_stays()
        if partition.begin >= partition.end:
            return
        wanted = self.options.criteria if partition.criteria is None else partition.criteria
        try:
            with open_ahead(self.options, self.patience_s) as opened:
                yield from self._rows(opened, partition, wanted)
        except RecordsGoneError as gone:
            # Taken between planning and reading. What was read before it has been delivered.
            tell_loss(self.options, gone.begin, gone.available_from)
            yield from self.read(replace(partition, begin=gone.available_from))
        except UnreadableLogError as problem:
            raise ReadError(
                f"holdfast data source: offsets {partition.begin} to {partition.end - 1} of"
                f" {wanted} could not be read: {problem}"
            ) from problem

    def _rows(
        self, opened: ReadableLog, part: LogRange, wanted: Criteria
    ) -> Iterator[pa.RecordBatch]:
        target = to_arrow_schema(self._schema, timezone="UTC")
        begin = part.begin
        try:
            for chunk in chunks(opened, wanted, begin, part.end, columns=self._columns):
                check_epoch(part.epoch, chunk.epoch, PLAN)
                if chunk.missing:
                    tell_damage(self.options, begin, chunk)
                begin = chunk.next_offset
                if chunk.batch.num_rows:
                    yield pa.RecordBatch.from_arrays(chunk.batch.columns, schema=target)
        except RecordsGoneError:
            # Of another log it means nothing that these offsets are gone.
            check_epoch(part.epoch, opened.extent().epoch, PLAN)
            raise


def _read_name(column: str) -> str:
    """The read interface's name of a column, which may be in any case, as in a query."""
    found = _READ_NAMES.get(column.lower())
    if found is None:
        raise OptionError(
            "schema", f"has the column {column!r}; there are {', '.join(READ_COLUMNS)}"
        )
    return found


@cache
def leave_what_stays() -> None:
    """What this worker has imported is no garbage any more. Spark has each of them look for that
    behind every task, which took 15 to 60 ms of the processor: as much as to read 50 000
    messages."""
    gc.freeze()


def plan_ranges(
    opened: ReadableLog,
    options: Options,
    extent: Extent,
    begin: int,
    end: int,
    criteria: Criteria | None = None,
) -> list[LogRange]:
    """Ranges of about equal bytes that cover what was asked for and is there. One of nothing, where
    there is nothing: a query without a partition is an error to Spark."""
    if begin < extent.begin and begin < end:
        available_from = min(extent.begin, end)
        tell_loss(options, begin, available_from)
        begin = available_from
    if begin >= end:
        return [LogRange(extent.epoch, begin, begin)]
    parts = options.partitions or (1 if end - begin <= SMALL_RANGE else CORES)
    rows = options.records_per_partition
    if parts > 1 or rows is not None:
        wanted = options.criteria if criteria is None else criteria
        ranges = opened.split(wanted, begin, end, parts, rows=rows)
        if rows is not None and len(ranges) == READ_PARTS_MAXIMUM:
            _check_last(opened, wanted, ranges, rows)
    else:
        ranges = [(begin, end)]
    return [LogRange(extent.epoch, first, to, criteria) for first, to in ranges]


def _check_last(
    opened: ReadableLog, wanted: Criteria, ranges: list[tuple[int, int]], rows: int
) -> None:
    """Raises if the last of as many tasks as there may be would have more messages than the option
    allows."""
    begin, end = ranges[-1]
    if opened.reach(wanted, begin, end, rows=rows + 1).rows > rows:
        raise OptionError(
            "maxRecordsPerPartition",
            f"is {rows}, and offsets {ranges[0][0]} to {end - 1} need more tasks for that than"
            f" {READ_PARTS_MAXIMUM}, which is the most; allow a task more, or read less at once:"
            " 'maxOffsetsPerTrigger' of a stream, 'endingOffsets' of a batch",
        )


def tell_loss(options: Options, begin: int, available_from: int) -> None:
    """Raises or warns, as `failOnDataLoss` says."""
    text = (
        f"holdfast data source: offsets {begin} to {available_from - 1} have been removed by "
        f"retention (read: {options.criteria}); the log begins at offset {available_from}"
    )
    _tell(options, text)


def tell_damage(options: Options, begin: int, chunk: Chunk) -> None:
    """The same of messages that cannot be read any more."""
    text = damage_text(begin, chunk.next_offset, chunk.missing)
    _tell(options, f"holdfast data source: {text} (read: {options.criteria})")


def _tell(options: Options, text: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. To go on without them set failOnDataLoss to false")
    log.warning(text)


def starting(options: Options, extent: Extent, opened: ReadableLog, *, default: Boundary) -> int:
    """The first offset that the options ask for."""
    if options.starting_time_us is not None:
        found = opened.offset_at(options.starting_time_us)
        if found >= extent.end and options.starting_strategy == "error":
            raise OptionError(
                "startingOffsetsByTimestampStrategy",
                "is error, and no message is as late as the starting time",
            )
        return found
    boundary = default if options.starting_offset is None else options.starting_offset
    return _resolved(boundary, extent)


def ending(options: Options, extent: Extent, opened: ReadableLog) -> int:
    """The offset that the options end before; at most the durable end where it is an offset."""
    if options.ending_time_us is not None:
        return opened.offset_at(options.ending_time_us)
    boundary = "latest" if options.ending_offset is None else options.ending_offset
    return min(_resolved(boundary, extent), extent.end)


def _resolved(boundary: Boundary, extent: Extent) -> int:
    if boundary == "earliest":
        return extent.begin
    return extent.end if boundary == "latest" else boundary
