"""A table whose version is an offset: rows and version together, new columns, rows by key."""

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.pipeline.load.files import SETTINGS, write_files, write_one_day
from holdfast.pipeline.load.table import (
    COMMITS_TO_A_CHECKPOINT,
    HISTORY,
    HISTORY_COMMITS,
    HISTORY_KEPT,
    NOTHING,
    Shape,
    StoredTable,
    TableError,
)
from holdfast.pipeline.load.upkeep import maintain

NARROW = Shape(StructType().add("offset", "long").add("a", "string"))
WIDE = Shape(StructType().add("offset", "long").add("a", "string").add("b", "double"))
RETYPED = Shape(StructType().add("offset", "long").add("a", "long"))
BY_NAME = Shape(StructType().add("name", "string").add("count", "long"), key=("name",))


def append(
    table: StoredTable, spark: SparkSession, shape: Shape, offset: int, *row: object
) -> bool:
    frame = spark.createDataFrame([(offset, *row)], shape.columns)
    return table.commit(write_files(frame, table.path, None), shape, offset)


def test_a_version_is_committed_once_and_a_new_column_is_null_in_older_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    assert table.version() == NOTHING
    assert append(table, spark, NARROW, 3, "x")
    assert not append(table, spark, NARROW, 3, "again")
    assert append(table, spark, WIDE, 7, "y", 0.5)
    assert table.version() == 7
    assert table.columns().names == ["offset", "a", "b"]
    rows = table.frame(spark, table.columns()).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(3, "x", None), (7, "y", 0.5)]
    # Nothing is left of the rows that came again, nor of tasks without any.
    on_disk = sorted(str(path) for path in table.path.rglob("*.parquet"))
    assert on_disk == sorted(table.files({}))
    with pytest.raises(TableError, match=r"epoch epoch, and this is the log with epoch other"):
        StoredTable(tmp_path / "t", "other").version()


def test_a_column_of_another_type_is_refused_until_the_table_is_made_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    assert append(table, spark, NARROW, 3, "x")
    with pytest.raises(TableError, match=r"the column a as string, and it would be bigint"):
        append(table, spark, RETYPED, 7, 5)
    assert [tuple(row) for row in table.frame(spark, table.columns()).collect()] == [(3, "x")]
    made = StoredTable(tmp_path / "made" / "t", "epoch")
    assert append(made, spark, RETYPED, 3, 5)
    table.take_over(made, RETYPED)
    assert append(table, spark, RETYPED, 7, 6)
    rows = table.frame(spark, table.columns()).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(3, 5), (7, 6)]


def test_a_column_that_parts_the_table_is_read_as_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    shape = Shape(StructType().add("offset", "long").add("day", "date"), partition="day")
    days = [date(2026, 2, 3), date(1999, 12, 31), date(2026, 2, 3), date(2026, 2, 4)]
    for begin in (0, 2):
        rows = [(offset, days[offset]) for offset in (begin, begin + 1)]
        files = write_files(spark.createDataFrame(rows, shape.columns), table.path, "day")
        assert table.commit(files, shape, begin + 1)
    found = table.frame(spark, shape.columns).orderBy("offset").collect()
    assert [tuple(row) for row in found] == list(enumerate(days))
    assert table.frame(spark, StructType().add("offset", "long")).columns == ["offset"]


def test_a_portion_says_of_its_rows_what_its_files_do(spark: SparkSession, tmp_path: Path) -> None:
    columns = StructType().add("offset", "long").add("at", "timestamp")
    shape, table = Shape(columns), StoredTable(tmp_path / "t", "epoch")
    noon = datetime(2026, 10, 25, 12, 0, 0, 1_500, tzinfo=UTC)
    for told in ([(1, noon), (2, None)], [(3, noon + timedelta(hours=1))], [(5, None)]):
        frame = spark.createDataFrame(told, columns).coalesce(1)
        assert table.commit(write_files(frame, table.path, None), shape, told[-1][0])
    every = table.portion(NOTHING, 9)
    assert (len(every.files), every.rows()) == (3, 4)
    assert every.earliest("at") is None, "a file does not say"
    first = table.portion(NOTHING, 3)
    assert (len(first.files), first.rows()) == (2, 3)
    # Times are said in milliseconds, and no row is before.
    assert first.earliest("at") == noon.replace(microsecond=1_000)
    part = table.portion(1, 4)
    assert (len(part.files), part.rows()) == (2, None), "a file has another row too"
    kept = table.of_portion(spark, columns, part).orderBy("offset").collect()
    assert [row["offset"] for row in kept] == [2, 3]
    assert (table.portion(5, 9).files, table.portion(5, 9).rows()) == ((), 0)


def test_small_files_are_read_by_one_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    for offset in range(4):
        append(table, spark, NARROW, offset, "x")

    def tasks() -> int:
        return table.frame(spark, NARROW.columns).rdd.getNumPartitions()

    assert tasks() == 1
    monkeypatch.setattr("holdfast.pipeline.load.table.ONE_TASK_BYTES", 100)
    assert tasks() > 1


def test_a_file_that_somebody_has_removed_is_named_by_whoever_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    append(table, spark, NARROW, 1, "x")
    [path] = table.files({})
    Path(path).unlink()
    with pytest.raises(AnalysisException, match=Path(path).name):
        table.of_portion(spark, NARROW.columns, table.portion(NOTHING, 1)).collect()


def test_a_change_by_somebody_else_is_found_behind_what_changes_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    assert append(table, spark, NARROW, 3, "x")
    assert append(table, spark, NARROW, 4, "y")
    DeltaTable(str(table.path)).optimize.compact()
    assert append(table, spark, NARROW, 5, "z")
    DeltaTable(str(table.path)).delete("a = 'z'")
    # Two files more, so that there is something to put together.
    for name in ("v", "u"):
        write_deltalake(str(table.path), pa.table({"offset": [6], "a": [name]}), mode="append")
    DeltaTable(str(table.path)).optimize.compact()
    with pytest.raises(TableError, match=r"changed by somebody else: version \d+ is a WRITE"):
        append(table, spark, NARROW, 7, "w")


def test_no_more_of_its_history_is_read_than_tells_that_it_is_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    assert append(table, spark, NARROW, 3, "x")
    read, history = list[int | None](), DeltaTable.history

    def noted(delta: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        read.append(limit)
        return history(delta, limit)

    monkeypatch.setattr(DeltaTable, "history", noted)
    assert append(table, spark, NARROW, 4, "y")
    DeltaTable(str(table.path)).optimize.compact()
    assert append(table, spark, NARROW, 5, "z")
    assert read == [1, 1, HISTORY_COMMITS]


def test_rows_are_replaced_and_removed_by_key_with_the_version(tmp_path: Path) -> None:
    table = StoredTable(tmp_path / "t", "epoch")

    def upsert(version: int, **rows: tuple[int, bool]) -> bool:
        changed = pa.table(
            {
                "name": pa.array(list(rows), pa.string()),
                "count": pa.array([count for count, _ in rows.values()], pa.int64()),
                "gone": pa.array([gone for _, gone in rows.values()], pa.bool_()),
            }
        )
        return table.upsert(changed, BY_NAME, version)

    def counts() -> dict[str, int]:
        rows = pa.table(DeltaTable(str(table.path)).to_pyarrow_table()).to_pylist()
        return {row["name"]: row["count"] for row in rows}

    assert upsert(4, a=(1, False), b=(2, False))
    assert upsert(9, a=(5, False), b=(0, True), c=(3, False), never=(0, True))
    assert not upsert(9, a=(100, False))
    assert counts() == {"a": 5, "c": 3}
    assert upsert(12)
    assert (table.version(), counts()) == (12, {"a": 5, "c": 3})


def test_a_null_in_a_key_is_like_another(tmp_path: Path) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    columns = StructType().add("reader", "string").add("antenna", "long").add("count", "long")
    shape = Shape(columns, key=("reader", "antenna"))

    def upsert(version: int, **columns: list[object]) -> bool:
        types = {"reader": pa.string(), "antenna": pa.int64(), "count": pa.int64()}
        made = {name: pa.array(column, types.get(name)) for name, column in columns.items()}
        return table.upsert(pa.table(made), shape, version)

    names, antennas = ["a", "a", None, None], [1, None, 1, None]
    assert upsert(1, reader=names, antenna=antennas, count=[1, 2, 3, 4])
    assert upsert(2, reader=names, antenna=antennas, count=[10, 20, 30, 40])
    assert upsert(3, reader=[None], antenna=[None], count=[0], gone=[True])
    rows = pa.table(DeltaTable(str(table.path)).to_pyarrow_table()).sort_by("count").to_pylist()
    assert [(row["reader"], row["antenna"], row["count"]) for row in rows] == [
        ("a", 1, 10),
        ("a", None, 20),
        (None, 1, 30),
    ]


def test_a_table_without_rows_is_known_to_be_empty_before_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    nothing = table.frame(spark, WIDE.columns)
    assert nothing.dtypes == [("offset", "bigint"), ("a", "string"), ("b", "double")]
    some = spark.createDataFrame([(1, "x", 0.5)], WIDE.columns)
    for frame in (nothing, some.join(nothing, "offset")):
        optimized = frame._jdf.queryExecution().optimizedPlan().toString()
        assert optimized.startswith("LocalRelation <empty>"), optimized
    assert some.unionByName(nothing).collect() == some.collect()


def test_more_partitions_than_are_written_side_by_side_are_all_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = 3 * int(SETTINGS["spark.sql.maxConcurrentOutputFileWriters"])
    rows = [(offset, f"day {offset % days:02}") for offset in range(10 * days)]
    frame = spark.createDataFrame(rows, NARROW.columns).coalesce(1)
    before = {name: spark.conf.get(name) for name in SETTINGS}
    written = write_files(frame, tmp_path / "t", "a")
    assert before == {name: spark.conf.get(name) for name in SETTINGS}
    assert len({action.partition_values["a"] for action in written.actions}) == days
    found = spark.read.parquet(str(written.folder)).collect()
    assert sorted((row["offset"], row["a"]) for row in found) == rows


@pytest.mark.parametrize(
    ("times", "day"),
    [
        (["2026-03-01T00:00:00", "2026-03-01T23:59:59.999999"], "2026-03-01"),
        (["1969-12-31T23:59:59.999999"], "1969-12-31"),
        (["2026-03-01T23:59:59.999999", "2026-03-02T00:00:00"], None),
        (["2026-03-01T00:00:00", None], None),
    ],
)
def test_files_are_those_of_a_day_if_all_of_their_rows_are(
    spark: SparkSession, tmp_path: Path, times: list[str | None], day: str | None
) -> None:
    texts = spark.createDataFrame([(text,) for text in times], "text string").coalesce(1)
    frame = texts.selectExpr("cast(text as timestamp) as at")
    written = write_one_day(frame, tmp_path / "t", "day", of="at")
    left = [path.parent.name for path in (tmp_path / "t").rglob("*.parquet")]
    if day is None:
        assert written is None
        assert left == []
    else:
        assert written is not None
        assert [action.partition_values for action in written.actions] == [{"day": day}]
        assert left == [f"day={day}"]
        assert written.rows == len(times)


def test_no_rows_are_of_any_day(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([], "at timestamp")
    written = write_one_day(frame, tmp_path / "t", "day", of="at")
    assert written is not None
    assert (written.actions, written.rows) == ((), 0)


def named(count: int) -> pa.Table:
    return pa.table({"name": ["x"], "count": [count]})


def commits_of(table: StoredTable) -> list[Path]:
    return sorted((table.path / "_delta_log").glob("*.json"))


def grow_old(table: StoredTable, hours: int) -> None:
    for path in commits_of(table):
        made = path.stat().st_mtime - hours * 3_600
        os.utime(path, (made, made))


def test_commits_that_nobody_goes_back_to_are_removed_as_the_table_grows(tmp_path: Path) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    for version in range(30):
        assert table.upsert(named(version), BY_NAME, version)
    grow_old(table, 5)
    for version in range(30, 60):
        assert table.upsert(named(version), BY_NAME, version)
    assert len(commits_of(table)) == 61, "of the last six hours all are there"
    grow_old(table, 2)
    for version in range(60, 60 + COMMITS_TO_A_CHECKPOINT):
        assert table.upsert(named(version), BY_NAME, version)
    # Those go that lie before the last checkpoint that is too old.
    assert len(commits_of(table)) <= 62
    assert table.opened().to_pyarrow_table().to_pylist() == [{"name": "x", "count": 79}]


@pytest.mark.parametrize("said", [None, "interval 30 days"])
def test_upkeep_shortens_the_history_of_older_tables_unless_somebody_has_said_how_long_it_is(
    tmp_path: Path, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StoredTable(tmp_path / "t", "epoch")
    # As it was before: nothing is said.
    monkeypatch.setattr("holdfast.pipeline.load.table.HISTORY", "holdfast.nothing")
    assert table.upsert(named(0), BY_NAME, 0)
    if said is not None:
        table.opened().alter.set_table_properties({HISTORY: said})
    for version in range(1, 10):
        assert table.upsert(named(version), BY_NAME, version)
    grow_old(table, 7)
    before = len(commits_of(table))
    maintain(table, keep_hours=168)
    kept = table.opened().metadata().configuration[HISTORY]
    assert kept == (said or HISTORY_KEPT)
    assert (len(commits_of(table)) < before) is (said is None)
    assert table.upsert(named(10), BY_NAME, 10)
    assert table.opened().to_pyarrow_table().to_pylist() == [{"name": "x", "count": 10}]
