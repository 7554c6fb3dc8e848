"""The data source `holdfast`: the log as a batch, and as a stream with exact restarts.

Owns: how options become ranges of offsets, how ranges become partitions, and the offset in
checkpoints.
Never: touches a row; the kernel fills Arrow batches, and they go to Spark as they are.

Invariants:
1. A partition is (epoch, begin, end), all absolute: read again, on any machine, it gives the same
   rows.
2. A stream's offset never lies beyond what is durable, and never moves back.
3. Rows that retention has taken raise under `failOnDataLoss`, and are told in a warning without it.

Flow: options -> extent of the log -> ranges -> tasks -> `holdfast.reading` -> Arrow batches.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.pipeline.options import Boundary, OptionError, Options, parse_options
from holdfast.pipeline.schemas import READ_COLUMNS, read_schema
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import (
    BATCH_ROWS_MAXIMUM,
    Extent,
    ReadableLog,
    RecordsGoneError,
    batches,
)
from holdfast.reading.remote import RemoteLog

CORES = 2
"""Partitions where `minPartitions` does not say: one a core, each further one costs 30 ms."""
OFFSETS_PER_TRIGGER = 500_000
"""A micro-batch that a driver can still take as one Arrow table."""
SMALL_RANGE = BATCH_ROWS_MAXIMUM
"""A micro-batch of one Arrow batch is not worth a second task."""
OFFSET_VERSION = 1


class CheckpointError(Exception):
    """The offset in the checkpoint does not belong to this log."""


class DataLossError(Exception):
    """Records between the last read and the next are not there any more."""


@dataclass(frozen=True)
class LogRange(InputPartition):
    """What one task reads."""

    epoch: str
    begin: int
    end: int


@lru_cache(maxsize=4)
def _opened(
    broker: str | None, user: str | None, password: str | None, data_dir: str | None
) -> ReadableLog:
    """One log per worker process: workers are reused, readers are unpickled for each task."""
    if broker is not None:
        return RemoteLog(broker, user, password)
    return LogDirectory(str(Path(str(data_dir)) / LOG_DIRECTORY))


def open_log(options: Options) -> ReadableLog:
    """The log that the options name; the same object for the same log in one process."""
    return _opened(options.broker, options.user, options.password, options.data_dir)


class HoldfastSource(DataSource):
    """`spark.read.format("holdfast")` and `spark.readStream.format("holdfast")`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is told."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return read_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> "BatchReader":
        """For `spark.read`."""
        options = parse_options(self.options)
        if options.offsets_per_trigger is not None:
            raise OptionError("maxOffsetsPerTrigger", "is for streams; this is a batch")
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """For `spark.readStream`."""
        options = parse_options(self.options)
        if options.ending_offset is not None:
            raise OptionError("endingOffsets", "is for batches; a stream has no end")
        if options.ending_time_us is not None:
            raise OptionError("endingTimestamp", "is for batches; a stream has no end")
        return StreamReader(options, schema)


class _RangeReader:
    """Reads a partition on an executor; what batch and stream have in common."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches."""
        assert isinstance(partition, LogRange)
        log = open_log(self.options)
        check_epoch(partition.epoch, log.extent(), "the plan of this query")
        target = to_arrow_schema(self._schema, timezone="UTC")
        columns = [READ_COLUMNS[name][0] for name in target.names]
        begin = partition.begin
        try:
            for batch in batches(log, self.options.filters, begin, partition.end, columns=columns):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=target)
        except RecordsGoneError as gone:
            # Taken between planning and reading. What was read before it has been delivered.
            tell_loss(self.options, gone.begin, gone.available_from)
            rest = LogRange(partition.epoch, gone.available_from, partition.end)
            yield from self.read(rest)


class BatchReader(_RangeReader, DataSourceReader):
    """One look at the log: "latest" is resolved once, when the query is planned."""

    def partitions(self) -> list[LogRange]:
        """The whole range, split; called once a query."""
        log = open_log(self.options)
        extent = log.extent()
        begin = _starting(self.options, extent, log, default="earliest")
        end = _ending(self.options, extent, log)
        return plan_ranges(log, self.options, extent, begin, end)


class StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream. Its offset is one number and the log's epoch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        log = open_log(self.options)
        extent = log.extent()
        begin = _starting(self.options, extent, log, default="latest")
        return format_offset(extent.epoch, max(begin, extent.begin))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch takes unless the trigger says otherwise."""
        return ReadMaxRows(self.options.offsets_per_trigger or OFFSETS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is durable now is all that this query will read."""
        self._target = open_log(self.options).extent().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` itself if there is nothing to read."""
        log = open_log(self.options)
        extent = log.extent()
        begin = parse_offset(start, extent)
        end = extent.end if self._target is None else min(self._target, extent.end)
        if end <= begin:
            return start
        if isinstance(limit, ReadMaxRows):
            # Loss is told when partitions are planned; here only what is there can be counted.
            first = max(begin, extent.begin)
            end = log.end_after_rows(self.options.filters, first, max(first, end), limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise TypeError(f"holdfast data source: read limit {limit} is not supported")
        return format_offset(extent.epoch, max(begin, end))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The durable end, for the query's progress: the difference is its lag."""
        extent = open_log(self.options).extent()
        return format_offset(extent.epoch, extent.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogRange]:
        """The ranges of one micro-batch; the same again when it is repeated."""
        log = open_log(self.options)
        extent = log.extent()
        return plan_ranges(
            log, self.options, extent, parse_offset(start, extent), parse_offset(end, extent)
        )


def plan_ranges(
    log: ReadableLog, options: Options, extent: Extent, begin: int, end: int
) -> list[LogRange]:
    """Ranges of about equal bytes that cover what was asked for and is there."""
    if begin < extent.begin and begin < end:
        available_from = min(extent.begin, end)
        tell_loss(options, begin, available_from)
        begin = available_from
    if begin >= end:
        return []
    parts = options.partitions or (1 if end - begin <= SMALL_RANGE else CORES)
    ranges = log.split(options.filters, begin, end, parts) if parts > 1 else [(begin, end)]
    return [LogRange(extent.epoch, first, to) for first, to in ranges]


def tell_loss(options: Options, begin: int, available_from: int) -> None:
    """Raises or warns, as `failOnDataLoss` says."""
    text = (
        f"holdfast data source: offsets {begin} to {available_from - 1} have been removed by "
        f"retention (read: {', '.join(options.filters)}); the log begins at offset {available_from}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. To go on without them set failOnDataLoss to false")
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def format_offset(epoch: str, offset: int) -> dict[str, Any]:
    """An offset as it stands in a checkpoint."""
    return {"v": OFFSET_VERSION, "epoch": epoch, "o": offset}


def parse_offset(document: Mapping[str, Any], extent: Extent) -> int:
    """The number in a checkpoint's offset, if it is of this log and the log still reaches it."""
    if document.get("v") != OFFSET_VERSION:
        raise CheckpointError(
            f"holdfast data source: the checkpoint's offset has version {document.get('v')!r}; "
            f"this program reads version {OFFSET_VERSION}"
        )
    check_epoch(document["epoch"], extent, "the checkpoint")
    offset = int(document["o"])
    if offset > extent.end:
        raise DataLossError(
            f"holdfast data source: the checkpoint is at offset {offset}, but the log ends at "
            f"{extent.end}: its last records are gone"
        )
    return offset


def check_epoch(epoch: str, extent: Extent, owner: str) -> None:
    """Refuses to mix two logs: their offsets mean different messages."""
    if epoch != extent.epoch:
        raise CheckpointError(
            f"holdfast data source: {owner} belongs to the log with epoch {epoch}, but this is the "
            f"log with epoch {extent.epoch}. A new log needs a new checkpoint"
        )


def _starting(options: Options, extent: Extent, log: ReadableLog, *, default: Boundary) -> int:
    if options.starting_time_us is not None:
        return log.offset_at(options.starting_time_us)
    boundary = default if options.starting_offset is None else options.starting_offset
    return _resolved(boundary, extent)


def _ending(options: Options, extent: Extent, log: ReadableLog) -> int:
    if options.ending_time_us is not None:
        return log.offset_at(options.ending_time_us)
    boundary = "latest" if options.ending_offset is None else options.ending_offset
    return min(_resolved(boundary, extent), extent.end)


def _resolved(boundary: Boundary, extent: Extent) -> int:
    if boundary == "earliest":
        return extent.begin
    return extent.end if boundary == "latest" else boundary
