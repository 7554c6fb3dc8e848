"""The log as a stream, for `spark.readStream`.

Invariant: its offset never lies beyond what is durable, and never moves back.
"""

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.offsets import format_offset, parse_offset
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.ranges import LogRange, RangeReader, plan_ranges, starting

OFFSETS_PER_TRIGGER = 500_000
"""A micro-batch that a driver can still take as one Arrow table."""


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream. Its offset is one number and the log's epoch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        log = open_log(self.options)
        extent = log.extent()
        begin = starting(self.options, extent, log, default="latest")
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
            reach = log.reach(self.options.criteria, first, max(first, end), rows=limit.max_rows)
            end = reach.end
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
