"""A table about a broker, for `spark.read` with the option `table`.

Owns: the options of a table, and its reader. Never: knows a table's columns, which are in
`holdfast.reading.tables`.

Invariant: with the option `moment` rows are of that moment, whenever they are read; without it of
the moment in which the query is planned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.core.table_names import TABLES
from holdfast.pipeline.parcel import Parcel
from holdfast.pipeline.source.forms import OptionError, address, password_file
from holdfast.reading.directory_tables import DirectoryTables
from holdfast.reading.remote_tables import RemoteTables
from holdfast.reading.tables import SCHEMAS

NAMES: Final = {
    name.lower(): name
    for name in ("broker", "user", "password", "passwordFile", "dataDir", "table", "moment")
}
"""The options of a table, by their names in lower case."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What one `load()` asked for."""

    table: str
    broker: str | None
    user: str | None
    password: str | None = field(repr=False)
    data_dir: str | None
    moment: str | None


@dataclass(frozen=True)
class TableOfMoment(InputPartition):
    """What the one task reads."""

    moment: str


def parse_table_options(given: Mapping[str, str]) -> TableOptions | None:
    """The options of a table; `None` where the option `table` is not given."""
    lower = {name.lower(): value for name, value in given.items()}
    if "table" not in lower:
        return None
    for name in given:
        if name.lower() not in NAMES:
            known = ", ".join(NAMES.values())
            raise OptionError(name, f"does not go with 'table'; there are {known}")
    found = {NAMES[name]: value.strip() for name, value in lower.items() if name != "password"}
    table = found["table"]
    if table not in SCHEMAS:
        why = "is read by 'subscribe', without 'table'" if table in TABLES else "is unknown"
        raise OptionError("table", f"{table!r} {why}; there are {', '.join(SCHEMAS)}")
    broker, data_dir = found.get("broker"), found.get("dataDir")
    if (broker is None) == (data_dir is None):
        raise OptionError("broker", "or 'dataDir' must be given, and not both")
    if broker is not None:
        address("broker", broker)
    if data_dir is not None and "moment" in found:
        raise OptionError("moment", "goes with 'broker'")
    password = lower.get("password")
    if "passwordFile" in found:
        if password is not None:
            raise OptionError("passwordFile", "cannot be combined with 'password'")
        password = password_file("passwordFile", found["passwordFile"])
    return TableOptions(table, broker, found.get("user"), password, data_dir, found.get("moment"))


def table_schema(options: TableOptions) -> StructType:
    """Spark's schema of a table."""
    return from_arrow_schema(SCHEMAS[options.table])


class TableReader(Parcel, DataSourceReader):
    """Reads a table in one task."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The table of one moment; called once a query."""
        options = self._options
        if options.broker is None or options.moment is not None:
            return [TableOfMoment(options.moment or "")]
        tables = _remote(options.broker, options.user, options.password)
        return [TableOfMoment(tables.take([options.table]).name)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Its rows, as Arrow batches."""
        assert isinstance(partition, TableOfMoment)
        target = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._batches(partition.moment):
            arrays = zip(batch.columns, target, strict=True)
            columns = [column.cast(wanted.type) for column, wanted in arrays]
            yield pa.RecordBatch.from_arrays(columns, schema=target)

    def _batches(self, moment: str) -> Iterator[pa.RecordBatch]:
        options = self._options
        if options.broker is None:
            return DirectoryTables(Path(str(options.data_dir))).read(options.table)
        remote = _remote(options.broker, options.user, options.password)
        return remote.read(moment, options.table)


@lru_cache(maxsize=4)
def _remote(broker: str, user: str | None, password: str | None) -> RemoteTables:
    """One connection per worker process: workers are reused, readers are unpickled for each
    task."""
    return RemoteTables(broker, user, password)
