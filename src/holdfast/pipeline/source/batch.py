"""One look at the log, for `spark.read`."""

from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from holdfast.pipeline.source.log import open_log, open_without_waiting
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.pushdown import Narrowing, narrowed
from holdfast.pipeline.source.ranges import LogRange, RangeReader, ending, plan_ranges, starting
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import Extent, ReadableLog
from holdfast.reading.remote import RemoteLog

TIME_MAXIMUM_US = 2**62
"""Later than any message."""


class BatchReader(RangeReader, DataSourceReader):
    """One look at the log: "latest" is resolved once, when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[LogRange]:
        """The whole range, split; called once a query."""
        opened = open_log(self.options)
        extent = opened.extent()
        begin = starting(self.options, extent, opened, default="earliest")
        end = ending(self.options, extent, opened)
        return self.planned(opened, extent, begin, end, self._criteria())

    def planned(
        self,
        opened: ReadableLog,
        extent: Extent,
        begin: int,
        end: int,
        criteria: Criteria | None = None,
    ) -> list[LogRange]:
        """What the query's filters leave of a range, split."""
        if self._narrowing is None:
            return plan_ranges(opened, self.options, extent, begin, end, criteria)
        if begin < extent.begin:
            # A loss is one, whatever the filters would have left of it.
            plan_ranges(opened, self.options, extent, begin, min(end, extent.begin), criteria)
            begin = min(end, extent.begin)
        begin, end = _within(self._narrowing, opened, begin, end)
        wanted = self._narrowing.applied(criteria or self.options.criteria)
        return plan_ranges(opened, self.options, extent, begin, end, wanted)

    def _criteria(self) -> Criteria | None:
        """What a queue shows, where one is named."""
        if self.options.queue is None:
            return None
        found = open_without_waiting(self.options)
        assert isinstance(found, RemoteLog), "the options have a broker beside a queue"
        return found.queue(self.options.queue)


class FilteredBatchReader(BatchReader):
    """The same, with the query's filters. Spark refuses such a reader unless the session allows
    it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes note of the filters; Spark applies all of them again."""
        self._narrowing = narrowed(filters)
        return filters


def _within(narrowing: Narrowing, opened: ReadableLog, begin: int, end: int) -> tuple[int, int]:
    """The part of a range that the filters leave."""
    begin = max(begin, narrowing.begin)
    end = end if narrowing.end is None else min(end, narrowing.end)
    if narrowing.begin_us > 0:
        begin = max(begin, opened.offset_at(min(narrowing.begin_us, TIME_MAXIMUM_US)))
    if narrowing.end_us is not None:
        end = min(end, opened.offset_at(max(0, min(narrowing.end_us, TIME_MAXIMUM_US))))
    return begin, max(begin, end)
