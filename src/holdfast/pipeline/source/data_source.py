"""What Spark finds by the name `holdfast`.

Owns: which reader answers, which options a batch and a stream refuse, and the options of a table
that was made by SQL.
"""

import json
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
)
from pyspark.sql.types import StructField, StructType

from holdfast.pipeline.source.batch import BatchReader, FilteredBatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.following import FollowingReader, FromCursorReader
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import (
    Options,
    is_of_a_table,
    options_of_user,
    parse_options,
)
from holdfast.pipeline.source.stream import StreamReader
from holdfast.pipeline.source.table import TableReader, parse_table_options, table_schema

OF_TABLE: Final = "holdfast.options"
"""Spark hands the options of `CREATE TABLE` to `schema()`, and none of them to a query of the
table. What it keeps is the schema, so that they are kept with the first column."""


class HoldfastSource(DataSource):
    """`format("holdfast")` of `spark.read`, `spark.readStream`, `df.write` and
    `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is told."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        table = parse_table_options(options_of_user(self.options))
        if table is not None:
            return table_schema(table)
        schema = read_schema(parse_options(self.options).columns)
        if not is_of_a_table(self.options):
            return schema
        given = {name.lower(): value for name, value in options_of_user(self.options).items()}
        if "password" in given:
            raise OptionError(
                "password", "would be kept with the table; use CREATE TEMPORARY VIEW instead"
            )
        first, *others = schema.fields
        kept: dict[str, Any] = {OF_TABLE: json.dumps(given)}
        return StructType([StructField(first.name, first.dataType, metadata=kept), *others])

    def reader(self, schema: StructType) -> BatchReader | TableReader:
        """For `spark.read`."""
        table = parse_table_options(options_of_user(self.options))
        if table is not None:
            return TableReader(table, schema)
        options = self._options(schema)
        options.refuse_unless("batch", "this is a batch")
        if options.cursor is not None:
            return FromCursorReader(options, schema)
        kind = FilteredBatchReader if options.pushdown else BatchReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """For `spark.readStream`."""
        if parse_table_options(options_of_user(self.options)) is not None:
            raise OptionError("table", "is for batches; a table is of one moment")
        options = self._options(schema)
        options.refuse_unless("stream", "this is a stream, which has no end")
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

    def _options(self, schema: StructType) -> Options:
        """Those of the query; where it has none, those with which its table was made."""
        of_table: dict[str, str] = json.loads(schema.fields[0].metadata.get(OF_TABLE, "{}"))
        return parse_options({**of_table, **self.options})
