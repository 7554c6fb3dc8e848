"""What Spark finds by the name `holdfast`.

Owns: which reader answers, which options a batch and a stream refuse, and the options of a table
that was made by SQL.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
)
from pyspark.sql.types import StructField, StructType

from holdfast.pipeline.parcel import Parcel
from holdfast.pipeline.source.batch import BatchReader, FilteredBatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.following import (
    FilteredFromCursorReader,
    FollowingReader,
    FromCursorReader,
)
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import (
    is_of_a_table,
    options_of_user,
    parse_options,
)
from holdfast.pipeline.source.stream import RefusedStreamReader, StreamReader
from holdfast.pipeline.source.table import TableReader, parse_table_options, table_schema
from holdfast.pipeline.writer.writers import batch_writer, stream_writer

OF_TABLE: Final = "holdfast.options"
"""Spark hands the options of `CREATE TABLE` to `schema()`, and none of them to a query of the
table. What it keeps is the schema, so that they are kept with the first column."""


class HoldfastSource(Parcel, DataSource):
    """`format("holdfast")` of `spark.read`, `spark.readStream`, `df.write` and
    `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is told."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        given = options_of_user(self.options)
        table = parse_table_options(given)
        if table is not None:
            schema = table_schema(table)
        else:
            schema = read_schema(parse_options(given).columns)
        return _with_options(schema, given) if is_of_a_table(self.options) else schema

    def reader(self, schema: StructType) -> BatchReader | TableReader:
        """For `spark.read`."""
        given = self._given(schema)
        table = parse_table_options(given)
        if table is not None:
            return TableReader(table, schema)
        options = parse_options(given)
        options.refuse_unless("batch", "this is a batch")
        if options.cursor is not None:
            from_cursor = FilteredFromCursorReader if options.pushdown else FromCursorReader
            return from_cursor(options, schema)
        kind = FilteredBatchReader if options.pushdown else BatchReader
        return kind(options, schema)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> StreamReader | RefusedStreamReader:
        """For `spark.readStream`. What is wrong with its options is said by the reader: Spark's own
        process fails over what is raised here, and tells that in place of it."""
        try:
            return self._stream_reader(schema)
        except OptionError as error:
            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> StreamReader:
        given = self._given(schema)
        if parse_table_options(given) is not None:
            raise OptionError("table", "is for batches; a table is of one moment")
        options = parse_options(given)
        options.refuse_unless("stream", "this is a stream, which has no end")
        kind = StreamReader if options.cursor is None else FollowingReader
        return kind(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`."""
        return stream_writer(self.options, schema, overwrite)

    def _given(self, schema: StructType) -> dict[str, str]:
        """The query's options; where it has none, those with which its table was made."""
        of_table: dict[str, str] = json.loads(schema.fields[0].metadata.get(OF_TABLE, "{}"))
        given = {**of_table, **options_of_user(self.options)}
        if not given:
            # Spark asks nobody about a table with columns, so that it cannot be refused when made.
            raise OptionError(
                "broker",
                "or 'dataDir' must be given. If this is a table of SQL, Spark has kept none of its"
                " options, since it was made with columns: make it without them, and choose them"
                " with the option 'columns'",
            )
        return given


def _with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The schema of a table that is made by SQL, with its options."""
    lower = {name.lower(): value for name, value in given.items()}
    if "password" in lower:
        raise OptionError(
            "password",
            "would be kept with the table; give 'passwordFile' or use CREATE TEMPORARY VIEW"
            " instead",
        )
    first, *others = schema.fields
    kept: dict[str, Any] = {OF_TABLE: json.dumps(lower)}
    return StructType([StructField(first.name, first.dataType, metadata=kept), *others])
