"""From the log to bronze and silver: each row once, wherever a run was cut, in any steps."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.sql.utils import StreamingQueryException

from holdfast.pipeline.jobs.bronze import BRONZE, Appender, _put_aside_if_ahead, start_query
from holdfast.pipeline.jobs.job import NO_ROWS, Job
from holdfast.pipeline.jobs.silver import silver_job
from holdfast.pipeline.jobs.stepping import AccountingError, catch_up
from holdfast.pipeline.load.files import DATA
from holdfast.pipeline.load.lock import TableLockedError
from holdfast.pipeline.load.table import Shape, TableError
from holdfast.pipeline.load.warehouse import Origin, Warehouse, WarehouseError
from holdfast.pipeline.payloads.catalog import read_catalog
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.options import parse_options
from tests.builders import stored
from tests.builders.served import served
from tests.builders.stored import Message, store
from tests.builders.tag_reads import message, mixed, read, received_at

SILVER = silver_job(read_catalog(None))


@pytest.fixture
def source(tmp_path: Path) -> dict[str, str]:
    return {"dataDir": str(tmp_path / "data"), "subscribe": "#", "maxOffsetsPerTrigger": "70"}


def warehouse_of(source: dict[str, str], directory: Path) -> Warehouse:
    epoch = open_log(parse_options(source)).extent().epoch
    return Warehouse.opened(directory, Origin(epoch, source["subscribe"]))


def run_bronze(spark: SparkSession, warehouse: Warehouse, source: dict[str, str]) -> int:
    taken: list[int] = []
    start_query(spark, warehouse, source, continued=taken.append).awaitTermination()
    return sum(taken)


def rows(warehouse: Warehouse, name: str) -> pa.Table:
    table = pa.table(DeltaTable(str(warehouse.table(name).path)).to_pyarrow_table())
    return table.sort_by("offset")


def offsets(warehouse: Warehouse, name: str) -> list[int]:
    return [int(each) for each in rows(warehouse, name)["offset"].to_pylist()]


def test_bronze_takes_the_rest_and_a_lost_checkpoint_costs_only_reading(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    messages = mixed(200)
    store(tmp_path / "data", messages[:150])
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    assert run_bronze(spark, warehouse, source) == 150
    store(tmp_path / "data", messages[150:], at=150)
    shutil.rmtree(warehouse.checkpoint(BRONZE))
    assert run_bronze(spark, warehouse, source) == 50
    assert run_bronze(spark, warehouse, source) == 0
    assert offsets(warehouse, BRONZE) == list(range(200))
    assert rows(warehouse, BRONZE)["value"].to_pylist() == [each.value for each in messages]


@pytest.mark.parametrize("by", ["dataDir", "broker"])
def test_a_table_without_a_checkpoint_knows_a_log_that_was_restored_from_a_copy(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, by: str
) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    store(data, mixed(60))
    shutil.copytree(data, copied)
    store(data, mixed(40), at=60)
    warehouse = warehouse_of(source, tmp_path / "pipeline")

    def run_from(directory: Path, **more: str) -> int:
        shutil.rmtree(warehouse.checkpoint(BRONZE), ignore_errors=True)
        if by == "dataDir":
            return run_bronze(spark, warehouse, source | more | {"dataDir": str(directory)})
        given = {name: value for name, value in source.items() if name != "dataDir"}
        with served(directory) as address:
            return run_bronze(spark, warehouse, given | more | {"broker": address})

    assert run_from(data) == 100
    store(copied, mixed(20), at=1_000)
    with pytest.raises(TableError, match="has the message with offset 99, and the log ends at 80"):
        run_from(copied, failOnDataLoss="false")
    store(copied, mixed(30), at=1_020)
    with pytest.raises(TableError, match=r"bronze is ahead .* offset 99 .* another directory"):
        run_from(copied)
    assert offsets(warehouse, BRONZE) == list(range(100))
    store(data, mixed(10), at=100)
    assert run_from(data) == 10


def test_a_table_behind_its_checkpoint_is_filled_from_where_it_ends(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(150))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    shutil.rmtree(warehouse.table(BRONZE).path)
    assert run_bronze(spark, warehouse, source) == 150
    assert offsets(warehouse, BRONZE) == list(range(150))


def test_a_checkpoint_ahead_of_its_table_is_seen_behind_messages_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "SEGMENT_BYTES", 64 << 20)
    # More than one read passes.
    others = [Message("video/1", b"x" * 1_000_000)] * 40
    store(tmp_path / "data", [*others, *[message(b"{}")] * 40])
    checkpoint = tmp_path / "checkpoint"
    for name, text in (("commits", "v1"), ("offsets", 'v1\n{"o": 80}')):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "0").write_text(text)
    options = {"dataDir": str(tmp_path / "data"), "startingOffsets": "earliest"}
    _put_aside_if_ahead(options | {"subscribe": "nothing/of/it"}, checkpoint, 0)
    assert checkpoint.exists()
    _put_aside_if_ahead(options | {"subscribe": "zebra/fx/+/reads"}, checkpoint, 0)
    assert not checkpoint.exists()


def test_a_batch_that_comes_again_adds_nothing(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(20))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    batch = spark.read.format("holdfast").options(dataDir=source["dataDir"], subscribe="#").load()
    appender = Appender(warehouse.table(BRONZE))
    assert appender.append(batch.where("offset < 10")) == 10
    assert appender.append(batch.where("offset < 15")) == 5
    assert appender.append(batch.where("offset < 15")) == 0
    assert offsets(warehouse, BRONZE) == list(range(15))


def test_a_table_that_is_removed_under_its_query_ends_it_and_the_next_one_fills_it(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(150))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    path = warehouse.table(BRONZE).path
    taken: list[int] = []

    def remove_once(rows: int) -> None:
        if not taken:
            shutil.rmtree(path)
        taken.append(rows)

    query = start_query(spark, warehouse, source, continued=remove_once)
    with pytest.raises(StreamingQueryException, match=r"was restored or removed .* to offset 69;"):
        query.awaitTermination()
    assert list(path.rglob("*.parquet")) == []
    assert run_bronze(spark, warehouse, source) == 150
    assert offsets(warehouse, BRONZE) == list(range(150))


@pytest.mark.parametrize("year", ["-0500", "+200000"])
def test_a_record_with_a_time_outside_the_years_that_python_knows_is_kept(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, year: str
) -> None:
    store(tmp_path / "data", mixed(20))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    batch = spark.read.format("holdfast").options(dataDir=source["dataDir"], subscribe="#").load()
    absurd = f.when(f.col("offset") == 3, f.expr(f"timestamp'{year}-12-31'"))
    told = batch.withColumn("eventTime", f.coalesce(absurd, "timestamp"))
    appender = Appender(warehouse.table(BRONZE))
    assert appender.append(told.where("offset < 10")) == 10
    assert appender.append(told.where("offset < 20")) == 10
    table = warehouse.table(BRONZE)
    kept = table.frame(spark, table.columns())
    assert kept.where(f"eventTime = timestamp'{year}-12-31'").count() == 1
    assert kept.count() == 20


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_each_record_is_in_the_partition_of_its_day_whether_a_batch_has_one_or_several(
    spark: SparkSession,
    source: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    zone: str,
) -> None:
    usual = spark.conf.get("spark.sql.session.timeZone")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", usual))
    spark.conf.set("spark.sql.session.timeZone", zone)
    store(tmp_path / "data", mixed(60))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    batch = spark.read.format("holdfast").options(dataDir=source["dataDir"], subscribe="#").load()
    # Ten records a step of the clock: the last moment of a day and the first of the next are in
    # one batch, one batch is all of one day, and one holds three days.
    moments = {
        0: "2026-03-01T23:59:59.999999",
        1: "2026-03-02T00:00:00",
        2: "2026-03-02T12:00:00",
        3: "2026-03-02T23:59:59.999999",
        4: "2026-03-03T00:00:00",
        5: "2026-03-04T00:00:00",
    }
    cases = [f"when offset div 10 = {tens} then '{moment}Z'" for tens, moment in moments.items()]
    clock = f.expr(f"cast(case {' '.join(cases)} end as timestamp)")
    told = batch.withColumn("timestamp", clock).coalesce(1)
    appender = Appender(warehouse.table(BRONZE))
    for low, high in ((0, 20), (20, 30), (30, 60)):
        assert appender.append(told.where(f"offset >= {low} and offset < {high}")) == high - low
    kept = rows(warehouse, BRONZE)
    assert kept["offset"].to_pylist() == list(range(60))
    days = [moments[offset // 10][:10] for offset in range(60)]
    assert [str(day) for day in kept["day"].to_pylist()] == days
    assert [str(time)[:10] for time in kept["timestamp"].to_pylist()] == days
    of_one_day = pa.table(DeltaTable(str(warehouse.table(BRONZE).path)).get_add_actions())
    assert sorted(str(each["day"]) for each in of_one_day["partition"].to_pylist()) == [
        "2026-03-01",
        "2026-03-02",
        "2026-03-02",
        "2026-03-02",
        "2026-03-03",
        "2026-03-04",
    ]


def test_each_record_is_parsed_rejected_or_a_duplicate_in_steps_of_any_size(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(200))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    found = {}
    for size in (1_000, 90):
        steps = catch_up(spark, warehouse, SILVER, rows=size)
        assert sum(each.rows_in for each in steps) == 200
        found[size] = {
            name: rows(warehouse, name) for name in SILVER.makes if name in warehouse.names()
        }
        for name in SILVER.makes:
            shutil.rmtree(warehouse.table(name).path)
    whole, pieces = found.values()
    assert whole["duplicates"].num_rows > 10
    assert whole["rejected"].num_rows > 10
    assert sum(table.num_rows for table in whole.values()) == 200
    assert sum(whole["tag_reads"]["late"].to_pylist()) > 5
    for name, table in whole.items():
        assert table.equals(pieces[name]), name


def test_a_step_that_was_cut_between_two_commits_is_ended_by_the_next_run(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "data", mixed(100))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    from holdfast.pipeline.load.table import StoredTable

    commit, commits = StoredTable.commit, []

    def dying(self: StoredTable, *arguments: object) -> bool:
        if len(commits) == 2:
            raise KeyboardInterrupt
        commits.append(self.name)
        return commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredTable, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        catch_up(spark, warehouse, SILVER, rows=60)
    monkeypatch.undo()
    catch_up(spark, warehouse, SILVER, rows=33)
    taken = [each for name in SILVER.makes for each in offsets(warehouse, name)]
    assert sorted(taken) == list(range(100))


def test_tables_that_get_no_rows_have_the_version_of_the_others(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", [message(read("FX", 1, received_at(0)))])
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    latest = Shape(StructType().add("topic", "string"), key=("topic",))
    nothing = Job("nothing", "bronze", {"latest": latest}, lambda *_: {"latest": NO_ROWS})
    told: list[int] = []
    [done] = catch_up(
        spark, warehouse, nothing, upserted=lambda _name, _job, version, _rows: told.append(version)
    )
    assert (done.rows_in, done.rows_out, told) == (1, {"latest": 0}, [0])
    [done] = catch_up(spark, warehouse, SILVER)
    assert done.rows_out == {"tag_reads": 1, "reader_events": 0, "rejected": 0, "duplicates": 0}
    for name in (*SILVER.makes, "latest"):
        assert warehouse.table(name).version() == 0
        # Nobody has asked Spark to write what there is not.
        assert (warehouse.table(name).path / DATA).exists() is (name == "tag_reads")


def test_a_job_that_loses_a_row_commits_nothing(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(20))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)

    def losing(fresh: DataFrame, past: object) -> dict[str, DataFrame]:
        made: dict[str, Any] = dict(SILVER.transform(fresh, past))  # type: ignore[arg-type]
        return made | {"tag_reads": made["tag_reads"].where("offset > 3")}

    job = Job("silver", "bronze", SILVER.makes, losing, accounts=True)
    with pytest.raises(AccountingError, match="took 20 rows and made 1"):
        catch_up(spark, warehouse, job)
    assert warehouse.names() == ["bronze"]
    leftovers = list((warehouse.directory / "tables" / "tag_reads").rglob("*.parquet"))
    assert leftovers == []


def test_a_table_with_a_key_is_not_ahead_of_an_account_that_does_not_hold(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(20))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    columns = StructType([StructField("topic", StringType()), StructField("offset", LongType())])
    makes = {"latest": Shape(columns, key=("topic",)), "others": Shape(columns)}

    def losing(fresh: DataFrame, _past: object) -> dict[str, DataFrame]:
        some = fresh.select("topic", "offset")
        return {"latest": some.where("offset < 1"), "others": some.where("offset > 1")}

    with pytest.raises(AccountingError, match="took 20 rows and made 19"):
        catch_up(spark, warehouse, Job("lasts", "bronze", makes, losing, accounts=True))
    assert warehouse.names() == ["bronze"]


def test_a_report_from_the_future_and_one_that_is_late(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    now = received_at(0)
    store(
        tmp_path / "data",
        [
            message(read("FX", 1, now + timedelta(days=1))),
            message(read("FX", 2, now - timedelta(minutes=11))),
            message(read("FX", 3, now)),
            message(b"\xff\xfe{}"),
        ],
    )
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    catch_up(spark, warehouse, SILVER)
    rules = rows(warehouse, "rejected")["rule"].to_pylist()
    assert rules[0] == "is not from the future"
    assert rules[1].startswith("is json with the types")
    assert rows(warehouse, "tag_reads")["late"].to_pylist() == [True, False]


def test_another_log_another_selection_and_a_newer_form_are_refused(tmp_path: Path) -> None:
    Warehouse.opened(tmp_path, Origin("one", "a/#"))
    with pytest.raises(WarehouseError, match=r"epoch one.*epoch two"):
        Warehouse.opened(tmp_path, Origin("two", "a/#"))
    with pytest.raises(WarehouseError, match=r"topics a/#.*now says b/#"):
        Warehouse.opened(tmp_path, Origin("one", "b/#"))
    Warehouse.opened(tmp_path / "two", Origin("one", "a/#,b"))
    Warehouse.opened(tmp_path / "two", Origin("one", "b, a/#"))
    state = tmp_path / "pipeline.json"
    state.write_text(state.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(WarehouseError, match="newer version"):
        Warehouse.opened(tmp_path, Origin("one", "a/#"))


def test_a_table_has_one_writer(tmp_path: Path) -> None:
    warehouse = Warehouse.opened(tmp_path, Origin("one", "#"))
    with warehouse.writing("bronze"):
        with warehouse.writing("tag_reads"):
            pass
        refused = pytest.raises(TableLockedError, match=r"bronze .* by process \d+")
        with refused, warehouse.writing("bronze"):
            pass
    with warehouse.writing("bronze"):
        pass


def test_a_table_that_somebody_else_changed_stops_the_job(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(20))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    path = str(warehouse.table(BRONZE).path)
    DeltaTable(path).optimize.compact()
    store(tmp_path / "data", mixed(20), at=20)
    assert run_bronze(spark, warehouse, source) == 20
    DeltaTable(path).delete("offset = 3")
    batch = spark.read.format("holdfast").options(dataDir=source["dataDir"], subscribe="#").load()
    moved = batch.withColumn("offset", batch["offset"] + 100)
    with pytest.raises(TableError, match=r"changed by somebody else.*DELETE"):
        Appender(warehouse.table(BRONZE)).append(moved)
    write_deltalake(path, rows(warehouse, BRONZE).slice(0, 1), mode="append")
