"""A Delta table that knows how far of its input it holds.

Owns: the commit of rows and progress together, and what is refused before it.
Never: trusts that a commit is new. delta-rs takes a version of an application twice without a word,
so the table is looked at first, and a lock keeps other writers away (`load.lock`).

Invariants:
1. Rows and version are one commit of the table: both are there, or neither.
2. The version never moves back. A replaced range keeps it; a table that is made anew has that of
   its new rows.
3. A table holds rows of one log. Every commit of ours says so; a commit of somebody else's that
   changed rows is found before the next of ours, and stops the job.

Flow: rows -> data files (`load.files`) -> one commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from holdfast.core.errors import OperatingError
from holdfast.pipeline.load.files import WrittenFiles, moved_files

EPOCH = "holdfast.epoch"
FORMAT = "holdfast.format"
FORMAT_VERSION = 1
MARK = "holdfast"
NOTHING = -1
"""The version of a table that holds nothing yet."""
COMMIT_ATTEMPTS = 5
"""Compaction beside a job may take a file that a commit was to replace; the next try sees that."""
ONE_TASK_BYTES = 1024 * 1024
"""Files that are no larger together are read by one task, and what is made of them needs no
exchange between tasks: each takes longer to be started than these rows do."""
COMMITS_TO_A_CHECKPOINT = 20
"""A table is opened with every commit, and reads those that are behind its last checkpoint: a
hundred, as delta-rs has it, take 25 ms."""
HISTORY = "delta.logRetentionDuration"
HISTORY_KEPT = "interval 6 hours"
"""One can go back so far to an earlier version. Whoever opens a table lists all that is kept: a
query that commits each second makes 20 000 of them, which take some 50 ms, and the 30 days that are
usual would be 2 600 000."""
NAMED_BEFORE = "delta.deletedFileRetentionDuration"
"""How long a table knows of a file that it named once, until the file may be removed: as long
as the versions that name it, unless a configuration says otherwise. Each checkpoint has all of
these, 600 000 in a week with one a second."""
HISTORY_COMMITS = 1_000
"""How far back a commit of ours is looked for; `maintain` makes a few, and nobody else any."""
HARMLESS = frozenset(
    ("OPTIMIZE", "VACUUM START", "VACUUM END", "ADD COLUMN", "CREATE TABLE", "SET TBLPROPERTIES")
)
"""Operations that change no row."""
PLACED = (
    *(BinaryType, BooleanType, NullType, NumericType, StringType),
    *(DateType, TimestampNTZType, TimestampType),
)
"""What delta-rs has a type for, besides what has parts."""


class TableError(OperatingError):
    """A table is not what the pipeline left there."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table looks like."""

    columns: StructType
    key: tuple[str, ...] = ()
    """Rows are upserted by it, those with a null in it too; without one they are appended."""
    partition: str | None = None


def columns_without_place(columns: StructType) -> list[str]:
    """The columns that no Delta table can hold, each with its type in words."""
    return [
        f"{each.name} ({each.dataType.simpleString()})"
        for each in columns
        if not _has_place(each.dataType)
    ]


def _has_place(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_place(kind.elementType)
    if isinstance(kind, MapType):
        return _has_place(kind.keyType) and _has_place(kind.valueType)
    if isinstance(kind, StructType):
        return all(_has_place(each.dataType) for each in kind)
    return isinstance(kind, PLACED)


@dataclass(frozen=True, slots=True)
class Portion:
    """A range of a table's offsets, and what the table's log says of the files that hold it. To ask
    Spark for as much takes a query, which is most of a small step."""

    after: int
    upto: int
    files: tuple[Mapping[str, Any], ...]

    def rows(self) -> int | None:
        """How many there are; `None` where a file may hold others too."""
        for each in self.files:
            low, high = each.get("min.offset"), each.get("max.offset")
            if low is None or high is None or low <= self.after or high > self.upto:
                return None
        return sum(int(each["num_records"]) for each in self.files)

    def earliest(self, column: str) -> datetime | None:
        """A time that is no later than any of them has in the column; `None` where a file does not
        say one."""
        found = [each.get(f"min.{column}") for each in self.files]
        times = [_in_utc(each) for each in found if isinstance(each, datetime)]
        return min(times) if times and len(times) == len(found) else None


class StoredTable:
    """One table of one log, at a path."""

    def __init__(self, path: Path, epoch: str) -> None:
        self.path = path
        self.name = path.name
        self._epoch = epoch

    @cached_property
    def application(self) -> str:
        """Under which the version is kept."""
        return f"holdfast/{self._epoch}"

    def exists(self) -> bool:
        """True once something was committed."""
        return DeltaTable.is_deltatable(str(self.path))

    def version(self) -> int:
        """The input's greatest offset that this table has taken, or `NOTHING`."""
        return self.version_of(self.opened_if_there())

    def version_of(self, delta: DeltaTable | None) -> int:
        """The same of the table as it was opened."""
        found: int | None = None if delta is None else delta.transaction_version(self.application)
        return NOTHING if found is None else found

    def opened_if_there(self) -> DeltaTable | None:
        """The table as it is now, once something was committed. Raises what `opened` does."""
        return self.opened() if self.exists() else None

    def opened(self) -> DeltaTable:
        """The table as it is now. Raises `TableError` if it is another log's or a newer form."""
        delta = DeltaTable(str(self.path))
        about = delta.metadata().configuration
        if int(about.get(FORMAT, FORMAT_VERSION)) > FORMAT_VERSION:
            raise TableError(
                f"the table {self.path} was written by a newer version of this program"
                f" (form {about[FORMAT]}, this one knows {FORMAT_VERSION})"
            )
        if about.get(EPOCH, self._epoch) != self._epoch:
            raise TableError(
                f"the table {self.path} holds rows of the log with epoch {about[EPOCH]}, and this"
                f" is the log with epoch {self._epoch}, whose offsets mean other messages; give"
                " the pipeline another directory for its tables"
            )
        return delta

    def commit(
        self,
        files: WrittenFiles,
        shape: Shape,
        version: int,
        before: DeltaTable | None = None,
    ) -> bool:
        """Adds the files and moves the version; false if the table has that version already.
        `before` is the table as it was opened just now, for whoever has looked."""
        before = before or self.opened_if_there()
        if version <= self.version_of(before):
            files.discard()
            return False
        delta = self._ready(shape, before)
        delta.create_write_transaction(
            list(files.actions),
            "append",
            delta.schema(),
            partition_by=_partitions(shape),
            commit_properties=self._properties(version),
        )
        return True

    def upsert(self, rows: pa.Table, shape: Shape, version: int) -> bool:
        """Replaces rows by key, removes those with `gone`, and moves the version, in one commit."""
        for attempt in range(COMMIT_ATTEMPTS):
            if version <= self.version():
                return False
            delta = self._ready(shape)
            try:
                self._merge(delta, rows, shape, version)
            except CommitFailedError:
                if attempt + 1 == COMMIT_ATTEMPTS:
                    raise
            else:
                return True
        return False

    def replace(self, rows: pa.RecordBatchReader, begin: int, end: int, shape: Shape) -> None:
        """Puts these rows in the place of those with offsets from `begin` to before `end`."""
        self._ready(shape)
        write_deltalake(
            str(self.path),
            rows,
            mode="overwrite",
            predicate=f"offset >= {begin} and offset < {end}",
            commit_properties=CommitProperties(custom_metadata={MARK: self.name}),
        )

    def take_over(self, made: "StoredTable", shape: Shape) -> None:
        """Has the rows and the version of a table that was made beside it, which is empty then.
        One commit: a reader sees all of the old rows or all of the new ones."""
        version, schema = made.version(), made.opened().schema()
        delta = self.opened() if self.exists() else self._ready(shape)
        files = moved_files(map(Path, made.files({})), made.path, self.path)
        delta.create_write_transaction(
            list(files.actions),
            "overwrite",
            schema,
            partition_by=_partitions(shape),
            commit_properties=self._properties(version),
        )

    def frame(
        self,
        spark: SparkSession,
        columns: StructType,
        *,
        above: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """The rows as Spark reads them; `above` leaves out files that lie wholly below it."""
        return self._read(spark, columns, self._reaching(above or {}))

    def _read(
        self, spark: SparkSession, columns: StructType, chosen: Sequence[Mapping[str, Any]]
    ) -> DataFrame:
        """The rows of files that the table's log describes."""
        if not chosen:
            return no_rows(spark, columns)
        reader = spark.read.schema(columns).option("recursiveFileLookup", "true")
        frame = reader.parquet(*map(self._path, chosen))
        if sum(each["size_bytes"] for each in chosen) <= ONE_TASK_BYTES:
            frame = frame.coalesce(1)
        # What parts the table is in the names of folders alone, which lie in one folder a commit.
        folders = Path(chosen[0]["path"]).parts[:-1]
        for name in (folder.partition("=")[0] for folder in folders if "=" in folder):
            if name in columns.names:
                told = f.regexp_extract("_metadata.file_path", f".*/{name}=([^/]*)/", 1)
                frame = frame.withColumn(name, told.cast(columns[name].dataType))
        return frame

    def portion(self, after: int, upto: int) -> "Portion":
        """What the table says of its rows with offsets beyond `after`, up to and with `upto`."""
        return Portion(after, upto, tuple(self._actions(after, upto)))

    def of_portion(self, spark: SparkSession, columns: StructType, portion: "Portion") -> DataFrame:
        """Those rows, as Spark reads them."""
        frame = self._read(spark, columns, portion.files)
        return frame.where((f.col("offset") > portion.after) & (f.col("offset") <= portion.upto))

    def files(self, above: Mapping[str, Any]) -> list[str]:
        """The files that may hold rows at or above these values."""
        return [self._path(each) for each in self._reaching(above)]

    def _reaching(self, above: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            each
            for each in self._described()
            if all(_may_reach(each.get(f"max.{name}"), value) for name, value in above.items())
        ]

    def _described(self) -> list[dict[str, Any]]:
        """What the table's log says of each of its files."""
        if not self.exists():
            return []
        found: list[dict[str, Any]] = pa.table(
            self.opened().get_add_actions(flatten=True)
        ).to_pylist()
        return found

    def _actions(self, after: int, upto: int) -> Iterator[dict[str, Any]]:
        """Those of the files that may hold offsets of a range."""
        for each in self._described():
            low, high = each.get("min.offset"), each.get("max.offset")
            if (high is None or high > after) and (low is None or low <= upto):
                yield each

    def _path(self, action: Mapping[str, Any]) -> str:
        return str(self.path / action["path"])

    def time_us_at(self, offset: int, column: str) -> int | None:
        """What the row with an offset has as its time, in microseconds; `None` without such a row
        or time."""
        for path in self.files({"offset": offset}):
            found = pq.read_table(
                path, columns=[column], filters=[("offset", "=", offset)], partitioning=None
            )
            if found.num_rows:
                time_us: int | None = found[column].cast(pa.int64())[0].as_py()
                return time_us
        return None

    def step_end(self, after: int, rows: int) -> int:
        """The offset up to which there are about so many rows beyond `after`; the version at
        most."""
        version = self.version()
        ahead = sorted(
            (each["min.offset"], each["max.offset"], each["num_records"])
            for each in self._described()
            if each.get("max.offset") is not None and each["max.offset"] > after
        )
        taken, end = 0, after
        for low, high, count in ahead:
            if taken + count > rows:
                begin = max(after, low - 1)
                return min(version, end if taken else min(high, begin + rows))
            taken, end = taken + count, max(end, high)
        return version

    def columns(self) -> StructType:
        """The columns that the table has now."""
        return _columns(self.opened())

    def _ready(self, shape: Shape, before: DeltaTable | None = None) -> DeltaTable:
        """The table, made if it is new, with every column of the shape, and nobody else's rows;
        `before` is what it was just now, for whoever has looked."""
        arrow = to_arrow_schema(shape.columns, timezone="UTC")
        if before is None and not self.exists():
            return DeltaTable.create(
                str(self.path),
                schema=Schema.from_arrow(_nullable(arrow)),
                partition_by=_partitions(shape),
                configuration={
                    EPOCH: self._epoch,
                    FORMAT: str(FORMAT_VERSION),
                    "delta.checkpointInterval": str(COMMITS_TO_A_CHECKPOINT),
                    HISTORY: HISTORY_KEPT,
                    NAMED_BEFORE: HISTORY_KEPT,
                },
                raise_if_key_not_exists=False,
                commit_properties=CommitProperties(custom_metadata={MARK: self.name}),
            )
        delta = self.opened() if before is None else before
        self._refuse_foreign(delta)
        there = self._refuse_other_types(delta, shape)
        new = [field for field in arrow if field.name not in there]
        if new:
            delta.alter.add_columns(list(Schema.from_arrow(_nullable(pa.schema(new))).fields))
            delta = self.opened()
        return delta

    def _refuse_other_types(self, delta: DeltaTable, shape: Shape) -> set[str]:
        """The columns that there are."""
        there = {each.name: each.dataType.simpleString() for each in _columns(delta)}
        for each in shape.columns:
            made = each.dataType.simpleString()
            if there.get(each.name, made) != made:
                raise TableError(
                    f"the table {self.path} has the column {each.name} as {there[each.name]}, and"
                    f" it would be {made} from now on: nobody could read both together. Give the"
                    " column another name, or make the table anew (`holdfast pipeline backfill"
                    " --rebuild` with its job)"
                )
        return set(there)

    def _refuse_foreign(self, delta: DeltaTable) -> None:
        # As a rule the last one is ours; a thousand take 26 ms to be read.
        newest = (commit for limit in (1, HISTORY_COMMITS) for commit in delta.history(limit))
        for commit in newest:
            if MARK in commit:
                return
            if commit.get("operation") not in HARMLESS:
                raise TableError(
                    f"the table {self.path} was changed by somebody else: version"
                    f" {commit.get('version')} is a {commit.get('operation')} by"
                    f" {commit.get('engineInfo', 'an unknown program')}. Restore the version before"
                    " it, or remove the table and let the pipeline make it again"
                )

    def _merge(self, delta: DeltaTable, rows: pa.Table, shape: Shape, version: int) -> None:
        if not rows.num_rows:
            delta.create_write_transaction(
                [], "append", delta.schema(), commit_properties=self._properties(version)
            )
            return
        if "gone" not in rows.column_names:
            rows = rows.append_column("gone", pa.array([False] * rows.num_rows))
        names = [name for name in rows.column_names if name != "gone"]
        # Null is null's like. What stands between `and` is read wrongly without the parentheses.
        same = " and ".join(f"(t.{name} is not distinct from s.{name})" for name in shape.key)
        taken = {name: f"s.{name}" for name in names}
        (
            delta.merge(
                rows,
                same,
                source_alias="s",
                target_alias="t",
                commit_properties=self._properties(version),
            )
            .when_matched_delete(predicate="s.gone")
            .when_matched_update(taken, predicate="not s.gone")
            .when_not_matched_insert(taken, predicate="not s.gone")
            .execute()
        )

    def _properties(self, version: int) -> CommitProperties:
        return CommitProperties(
            custom_metadata={MARK: self.name},
            app_transactions=[Transaction(self.application, version)],
        )


def no_rows(spark: SparkSession, columns: StructType) -> DataFrame:
    """A frame with these columns that Spark's optimizer knows to be empty: unions and joins with it
    fall away, where one made of a list without rows would be asked for them by Python workers."""
    nothing = spark.range(1).where(f.lit(False))
    return nothing.select([f.lit(None).cast(each.dataType).alias(each.name) for each in columns])


def _columns(delta: DeltaTable) -> StructType:
    found = from_arrow_schema(pa.schema(delta.schema().to_arrow()))
    return StructType([StructField(each.name, each.dataType) for each in found])


def _partitions(shape: Shape) -> list[str] | None:
    return None if shape.partition is None else [shape.partition]


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _may_reach(highest: Any, value: Any) -> bool:
    if isinstance(highest, datetime):
        highest = _in_utc(highest)
    return highest is None or bool(highest >= value)


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
