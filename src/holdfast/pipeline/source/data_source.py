"""What Spark finds by the name `holdfast`.

Owns: which reader answers, and which options a batch and a stream refuse.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.following import FollowingReader, FromCursorReader
from holdfast.pipeline.source.options import OptionError, parse_options
from holdfast.pipeline.source.stream import StreamReader
from holdfast.pipeline.source.table import TableReader, parse_table_options, table_schema


class HoldfastSource(DataSource):
    """`spark.read.format("holdfast")` and `spark.readStream.format("holdfast")`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is told."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        table = parse_table_options(self.options)
        if table is not None:
            return table_schema(table)
        return read_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader | TableReader:
        """For `spark.read`."""
        table = parse_table_options(self.options)
        if table is not None:
            return TableReader(table, schema)
        options = parse_options(self.options)
        if options.offsets_per_trigger is not None:
            raise OptionError("maxOffsetsPerTrigger", "is for streams; this is a batch")
        kind = BatchReader if options.cursor is None else FromCursorReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """For `spark.readStream`."""
        if parse_table_options(self.options) is not None:
            raise OptionError("table", "is for batches; a table is of one moment")
        options = parse_options(self.options)
        if options.ending_offset is not None:
            raise OptionError("endingOffsets", "is for batches; a stream has no end")
        if options.ending_time_us is not None:
            raise OptionError("endingTimestamp", "is for batches; a stream has no end")
        kind = StreamReader if options.cursor is None else FollowingReader
        return kind(options, schema)
