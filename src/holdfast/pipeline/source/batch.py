"""One look at the log, for `spark.read`."""

from pyspark.sql.datasource import DataSourceReader

from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.ranges import LogRange, RangeReader, ending, plan_ranges, starting


class BatchReader(RangeReader, DataSourceReader):
    """One look at the log: "latest" is resolved once, when the query is planned."""

    def partitions(self) -> list[LogRange]:
        """The whole range, split; called once a query."""
        log = open_log(self.options)
        extent = log.extent()
        begin = starting(self.options, extent, log, default="earliest")
        end = ending(self.options, extent, log)
        return plan_ranges(log, self.options, extent, begin, end)
