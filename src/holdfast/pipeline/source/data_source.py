"""What Spark finds by the name `holdfast`.

Owns: which reader answers, and which options a batch and a stream refuse.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
)
from pyspark.sql.types import StructType

from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.following import FollowingReader, FromCursorReader
from holdfast.pipeline.source.options import OptionError, parse_options
from holdfast.pipeline.source.stream import StreamReader


class HoldfastSource(DataSource):
    """`format("holdfast")` of `spark.read`, `spark.readStream`, `df.write` and
    `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is told."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return read_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        options = parse_options(self.options)
        if options.offsets_per_trigger is not None:
            raise OptionError("maxOffsetsPerTrigger", "is for streams; this is a batch")
        kind = BatchReader if options.cursor is None else FromCursorReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """For `spark.readStream`."""
        options = parse_options(self.options)
        if options.ending_offset is not None:
            raise OptionError("endingOffsets", "is for batches; a stream has no end")
        if options.ending_time_us is not None:
            raise OptionError("endingTimestamp", "is for batches; a stream has no end")
        kind = StreamReader if options.cursor is None else FollowingReader
        return kind(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`."""
        from holdfast.pipeline.writer.writers import batch_writer  # It stands on this folder.

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`."""
        from holdfast.pipeline.writer.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)
