"""Tables done again, kept in order, and read by others: the rows stay the same."""

from dataclasses import replace

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.pipeline.backfill import BackfillError, has_ranges, rebuild, replace_range
from holdfast.pipeline.configuration import read_configuration
from holdfast.pipeline.jobs.bronze import BRONZE
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.load.table import MARK, CommitProperties, Shape
from holdfast.pipeline.load.upkeep import maintain
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.running import REST_MAXIMUM_S, Pipeline, Progress
from holdfast.pipeline.running import rest_s as rest_s_of_a_run
from tests.builders.stored import store
from tests.builders.tag_reads import mixed

MESSAGES = mixed(120)


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline that has taken 120 messages in two runs."""
    folder = tmp_path_factory.mktemp("pipeline")
    file = folder / "pipeline.toml"
    file.write_text('[log]\ndata_dir = "data"\nsubscribe = "#"\n')
    made = Pipeline(read_configuration(file))
    for begin, end in ((0, 80), (80, 120)):
        store(folder / "data", MESSAGES[begin:end], at=begin)
        made.run(spark, once=True)
    return made


BY_OFFSET = ("bronze", "tag_reads", "rejected", "duplicates")


def rows(warehouse: Warehouse, name: str) -> pa.Table:
    table = pa.table(DeltaTable(str(warehouse.table(name).path)).to_pyarrow_table())
    return table.sort_by("offset")


def test_a_range_is_read_again_and_takes_the_place_of_what_was_there(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    warehouse = pipeline.opened()
    before = {name: rows(warehouse, name) for name in BY_OFFSET}
    versions = {name: warehouse.table(name).version() for name in before}
    bronze = warehouse.table(BRONZE)
    spoilt = before["bronze"].slice(40, 1)
    write_deltalake(
        str(bronze.path),
        spoilt,
        mode="overwrite",
        predicate="offset >= 35 and offset < 50",
        commit_properties=CommitProperties(custom_metadata={MARK: "a test"}),
    )
    assert rows(warehouse, "bronze").num_rows == 106
    commits = DeltaTable(str(bronze.path)).version()
    source = pipeline.configuration.source()
    done = list(replace_range(spark, warehouse, source, pipeline.jobs, 30, 60))
    assert done[0].rows == 30
    assert sum(each.rows for each in done[1:]) == 30
    assert DeltaTable(str(bronze.path)).version() == commits + 1
    for name, table in before.items():
        assert rows(warehouse, name).equals(table), name
        assert warehouse.table(name).version() == versions[name]
    with pytest.raises(BackfillError, match=r"bronze ends at offset 119.*up to 200"):
        list(replace_range(spark, warehouse, source, pipeline.jobs, 30, 200))


def test_what_was_made_of_rows_that_a_range_replaces_is_made_anew() -> None:
    columns = StructType().add("offset", "long").add("x", "string")

    def job(reads: str, *key: str) -> Job:
        return Job(
            "any", reads, {"made": Shape(columns, key)}, lambda fresh, _past: {"made": fresh}
        )

    assert has_ranges(job("bronze"))
    assert not has_ranges(job("bronze", "x"))
    assert not has_ranges(job("tag_reads", "x"))
    assert not has_ranges(job("tag_reads")), "its input is replaced below it"


def test_silver_is_made_again_equal_from_bronze_alone(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    warehouse = pipeline.opened()
    before = {name: rows(warehouse, name) for name in BY_OFFSET[1:]}
    assert rebuild(spark, warehouse, pipeline.jobs[0], rows=70) == 120
    for name, table in before.items():
        assert rows(warehouse, name).equals(table), name


def test_a_table_that_is_made_anew_is_there_all_the_time(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    warehouse = pipeline.opened()
    presence, silver = warehouse.table("presence"), warehouse.table("tag_reads")
    visits = [(name, "ascending") for name in pipeline.shapes()["presence"].key]
    expected = pa.table(DeltaTable(str(presence.path)).to_pyarrow_table()).sort_by(visits)
    reads = rows(warehouse, "tag_reads")
    # What somebody else has done to a table ends with it.
    DeltaTable(str(presence.path)).delete()
    DeltaTable(str(silver.path)).delete("offset < 60")
    seen = {stored.name: DeltaTable(str(stored.path)) for stored in (presence, silver)}
    held = {name: delta.to_pyarrow_table().num_rows for name, delta in seen.items()}
    for job in pipeline.jobs:
        if {"presence", "tag_reads"} & set(job.makes):
            rebuild(spark, warehouse, job, rows=70)
    found = pa.table(DeltaTable(str(presence.path)).to_pyarrow_table()).sort_by(visits)
    assert found.equals(expected)
    assert rows(warehouse, "tag_reads").equals(reads)
    for name, delta in seen.items():
        # One commit behind what a reader has opened, which is there as it was.
        assert DeltaTable(str(warehouse.table(name).path)).version() == delta.version() + 1
        assert delta.to_pyarrow_table().num_rows == held[name]
        assert warehouse.table(name).version() == 119
    assert not (warehouse.directory / ".beside").exists()


def test_the_copy_of_an_answer_that_is_made_anew_is_made_anew(pipeline: Pipeline) -> None:
    serving, shape = pipeline.serving(), pipeline.shapes()["presence"]
    assert serving is not None
    table = pipeline.opened().table("presence")
    assert not serving.follow(table, shape)
    serving.forget(["presence"])
    assert serving.follow(table, shape)


def test_maintenance_beside_a_writer_changes_no_row_and_keeps_the_version(
    pipeline: Pipeline,
) -> None:
    warehouse = pipeline.opened()
    before = {name: rows(warehouse, name) for name in BY_OFFSET}
    with warehouse.writing(*pipeline.shapes()):
        for name, table in before.items():
            stored = warehouse.table(name)
            version = stored.version()
            orphan = stored.path / "data" / "lost" / "part.parquet"
            orphan.parent.mkdir(parents=True)
            orphan.write_bytes(b"of a commit that never came")
            done = maintain(stored, keep_hours=0)
            assert done.files_after <= done.files_before
            assert done.compacted
            assert not orphan.exists()
            assert rows(warehouse, name).equals(table), name
            assert stored.version() == version


def test_the_tables_are_read_by_spark_duckdb_polars_and_pandas(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    table = pipeline.opened().table("tag_reads")
    expected = rows(pipeline.opened(), "tag_reads")["offset"].to_pylist()
    files = table.files({})
    by_spark = table.frame(spark, table.columns()).select("offset").collect()
    assert sorted(row["offset"] for row in by_spark) == expected
    by_duckdb = duckdb.read_parquet(files).project('"offset"').fetchall()
    assert sorted(row[0] for row in by_duckdb) == expected
    by_polars = pl.from_arrow(DeltaTable(str(table.path)).to_pyarrow_table())
    assert isinstance(by_polars, pl.DataFrame)
    assert sorted(by_polars["offset"].to_list()) == expected
    by_pandas = pd.read_parquet(files, columns=["offset"])
    assert sorted(by_pandas["offset"].tolist()) == expected


class EnoughError(Exception):
    """The run has done what is looked at."""


@pytest.mark.parametrize(("rows_per_batch", "does_rest"), [(500_000, True), (1, False)])
def test_a_run_rests_where_it_has_left_nothing_behind(
    spark: SparkSession,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    rows_per_batch: int,
    does_rest: bool,
) -> None:
    rested: list[float] = []

    def rest_s(worked_s: float) -> float:
        rested.append(worked_s)
        return 0.01

    end = pipeline.opened().table(BRONZE).version() + 1
    given = pipeline.configuration
    run = replace(given.run, rows_per_batch=rows_per_batch, interval_s=0.1)
    monkeypatch.setattr(pipeline, "configuration", replace(given, run=run))
    monkeypatch.setattr("holdfast.pipeline.running.rest_s", rest_s)
    store(given.directory.parent / "data", mixed(1), at=end)
    turns = 0

    def seen(progress: Progress) -> None:
        nonlocal turns
        # The turn after the one that has brought all tables to the end.
        turns += all(progress.versions.get(name) == end for name in pipeline.shapes())
        if turns == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        pipeline.run(spark, once=False, seen=seen)
    assert bool(rested) is does_rest
    assert rest_s_of_a_run(2.0) == 2.0
    assert rest_s_of_a_run(600.0) == REST_MAXIMUM_S


def test_a_run_puts_together_what_it_has_filled(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = pipeline.opened()
    before = {name: rows(warehouse, name) for name in BY_OFFSET}
    told: list[tuple[str, int]] = []

    def seen(progress: Progress) -> None:
        if progress.compacting is not None:
            told.append(progress.compacting)

    monkeypatch.setattr("holdfast.pipeline.load.upkeep.FILES_TO_COMPACT", 2)
    end = warehouse.table(BRONZE).version() + 1
    store(pipeline.configuration.directory.parent / "data", mixed(10), at=end)
    pipeline.run(spark, once=True, seen=seen)
    # And those of the run itself have come since.
    assert len(warehouse.table(BRONZE).files({})) <= dict(told)[BRONZE]
    for name, table in before.items():
        assert rows(warehouse, name).slice(0, table.num_rows).equals(table), name
