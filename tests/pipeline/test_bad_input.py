"""What the world does to tables and jobs: disks fill up, the log forgets, payloads are huge, and a
cursor goes. A run stops with a sentence, and no row is lost or doubled."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.client.http import HttpClient
from holdfast.pipeline.backfill import replace_range
from holdfast.pipeline.configuration import Configuration, LogEntries, RunEntries
from holdfast.pipeline.jobs.bronze import BRONZE
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.jobs.silver import silver_job
from holdfast.pipeline.jobs.stepping import catch_up
from holdfast.pipeline.load.lock import TableLockedError
from holdfast.pipeline.load.table import Shape
from holdfast.pipeline.load.warehouse import CHECKPOINTS, TABLES
from holdfast.pipeline.payloads.catalog import read_catalog
from holdfast.pipeline.running import Pipeline, Progress, RunError, told
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.options import parse_options
from tests.builders.stored import Message, forget, store
from tests.builders.tag_reads import mixed
from tests.interop.device import Device
from tests.pipeline.test_steps import offsets, rows, run_bronze, warehouse_of
from tests.process import BrokerProcess
from tests.small_disk import SmallDisk, small_disk

SILVER = silver_job(read_catalog(None))
READS = "zebra/fx/7/reads"


@pytest.fixture
def source(tmp_path: Path) -> dict[str, str]:
    return {"dataDir": str(tmp_path / "data"), "subscribe": "#", "maxOffsetsPerTrigger": "1000"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place) as made:
        if not made.is_its_own:
            pytest.skip("a full disk needs the right to mount one")
        yield made


@pytest.mark.parametrize("full", [TABLES, CHECKPOINTS])
def test_a_full_disk_stops_the_query_and_costs_no_row(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, disk: SmallDisk, full: str
) -> None:
    store(tmp_path / "data", mixed(50))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    (disk.directory / full).mkdir()
    (warehouse.directory / full).symlink_to(disk.directory / full)
    assert run_bronze(spark, warehouse, source) == 50
    store(tmp_path / "data", mixed(100)[50:], at=50)
    disk.fill_up()
    with pytest.raises(RunError, match="No space left on device") as refused, told():
        run_bronze(spark, warehouse, source)
    assert len(str(refused.value).splitlines()) == 1
    disk.free()
    run_bronze(spark, warehouse, source)
    assert offsets(warehouse, BRONZE) == list(range(100))


def test_a_full_disk_under_a_job_costs_no_row(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, disk: SmallDisk
) -> None:
    store(tmp_path / "data", mixed(50))
    warehouse = warehouse_of(source, disk.directory / "pipeline")
    run_bronze(spark, warehouse, source)
    disk.fill_up()
    with pytest.raises(RunError, match="No space left on device"), told():
        catch_up(spark, warehouse, SILVER)
    disk.free()
    catch_up(spark, warehouse, SILVER)
    assert sorted(at for name in SILVER.makes for at in offsets(warehouse, name)) == list(range(50))


@pytest.mark.parametrize("is_checkpoint_lost", [False, True])
def test_offsets_that_the_log_has_forgotten_stop_the_query_unless_that_is_allowed(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, is_checkpoint_lost: bool
) -> None:
    store(tmp_path / "data", mixed(50))
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    store(tmp_path / "data", [Message(READS, b"x" * 40_000)] * 350, at=50)
    forget(tmp_path / "data")
    begin = open_log(parse_options(source)).extent().begin
    assert 50 < begin < 400
    if is_checkpoint_lost:
        shutil.rmtree(warehouse.checkpoint(BRONZE))
    with pytest.raises(RunError, match=f"offsets 50 to {begin - 1} have been removed"), told():
        run_bronze(spark, warehouse, source)
    assert offsets(warehouse, BRONZE) == list(range(50))
    run_bronze(spark, warehouse, {**source, "failOnDataLoss": "false"})
    assert offsets(warehouse, BRONZE) == [*range(50), *range(begin, 400)]


def test_a_second_run_on_the_same_tables_is_refused_before_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(20))
    log = LogEntries(data_dir="data", subscribe="#")
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log))
    held = pipeline.opened().writing("presence")
    with held, pytest.raises(TableLockedError, match=r"presence in .* by process \d+"):
        pipeline.run(spark, once=True)
    assert pipeline.opened().names() == []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, http_port=0, maximum_packet_size_bytes="8MiB")
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def publish(broker: BrokerProcess, *values: bytes) -> None:
    device = Device(broker.port, "seven").connect()
    device.publish_all(READS, list(values), qos=1)
    device.close()


def test_payloads_of_megabytes_are_rejected_as_they_are(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    source = {"broker": broker.http_address, "subscribe": READS, "maxBytesPerTrigger": "8m"}
    values = [bytes([255 - number]) * 6_000_000 for number in range(4)]
    publish(broker, *values)
    warehouse = warehouse_of(source, tmp_path / "pipeline")
    run_bronze(spark, warehouse, source)
    catch_up(spark, warehouse, SILVER)
    rejected = rows(warehouse, "rejected")
    assert rejected["value"].to_pylist() == values
    assert set(rejected["rule"].to_pylist()) == {"has at most 1048576 bytes"}


def test_a_cursor_that_is_removed_under_a_run_ends_it_with_a_sentence(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker, b"one", b"two")
    log = LogEntries(broker=broker.http_address, options={"cursor": "tables"})
    run = RunEntries(interval_s=0.1)
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log, run=run))
    client = HttpClient.on(broker.data_directory)
    looks: list[int] = []

    def remove_once(progress: Progress) -> None:
        if progress.rows == 2 and not looks:
            client.delete("/v1/cursors/tables")
        looks.extend([progress.rows] if progress.rows == 2 else [])
        assert len(looks) < 300, "it goes on without its cursor"

    with pytest.raises(RunError, match=r"cursor 'tables' at .* is not there: it has been"), told():
        pipeline.run(spark, once=False, seen=remove_once)
    assert rows(pipeline.opened(), BRONZE)["value"].to_pylist() == [b"one", b"two"]


def test_an_error_of_a_job_names_it_and_what_is_to_go_is_of_the_pipelines_topics(
    spark: SparkSession, tmp_path: Path
) -> None:
    others = [Message("other/topic", b"{}")] * 30
    store(tmp_path / "data", [*mixed(20), *others])
    log = LogEntries(data_dir="data", subscribe="zebra/fx/+/reads")
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log))
    seen: list[int | None] = []
    pipeline.run(spark, once=True, seen=lambda progress: seen.append(progress.lag))
    assert seen[-1] == 0
    assert max(each for each in seen if each is not None) == 0

    def failing(fresh: DataFrame, _past: object) -> dict[str, DataFrame]:
        return {"failing": fresh.selectExpr("offset", "offset div 0 AS share")}

    columns = StructType().add("offset", "long").add("share", "long")
    pipeline.jobs.append(Job("failing", BRONZE, {"failing": Shape(columns)}, failing))
    with pytest.raises(RunError, match=r"^job failing: \[DIVIDE_BY_ZERO\]") as refused:
        pipeline.run(spark, once=True)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"MaxBytesPerTrigger": "64m"},
        {"minOffsetsPerTrigger": "1", "maxtriggerdelay": "1s"},
        {"startingTimestamp": "1970-01-02"},
        {"startingOffsetsByTimestamp": '{"0": 1000}'},
        {"startingoffsets": "0"},
        {"subscribePattern": "zebra/.*"},
    ],
)
def test_a_range_is_read_again_and_a_run_goes_on_whatever_options_a_stream_has(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    store(tmp_path / "data", mixed(10))
    log = LogEntries(data_dir="data", options=options)
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log))
    pipeline.configuration.check_options()
    warehouse, source = pipeline.opened(), pipeline.configuration.source()
    assert run_bronze(spark, warehouse, source) == 10
    done = next(iter(replace_range(spark, warehouse, source, [], 3, 9)))
    assert (done.table, done.rows) == (BRONZE, 6)
    store(tmp_path / "data", mixed(15)[10:], at=10)
    assert run_bronze(spark, warehouse, source) == 5
    assert offsets(warehouse, BRONZE) == list(range(15))
