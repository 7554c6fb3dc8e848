"""Presence, liveness, latency, queued deliveries and rates: checked by hand, and in any steps."""

import shutil
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from holdfast.pipeline.configuration import read_configuration
from holdfast.pipeline.jobs.gold import LIVENESS, Answers, liveness, throughput
from holdfast.pipeline.jobs.silver import _before
from holdfast.pipeline.jobs.stepping import catch_up
from holdfast.pipeline.load.table import no_rows
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.payloads.catalog import read_catalog
from holdfast.pipeline.payloads.judging import DUPLICATES
from holdfast.pipeline.running import Pipeline
from tests.builders.stored import Message, store
from tests.builders.tag_reads import message, mixed, read, received_at


def pipeline_of(tmp_path: Path) -> Pipeline:
    file = tmp_path / "pipeline.toml"
    file.write_text('[log]\ndata_dir = "data"\nsubscribe = "#"\n')
    return Pipeline(read_configuration(file))


def rows(warehouse: Warehouse, name: str, *order: str) -> list[dict[str, object]]:
    table = pa.table(DeltaTable(str(warehouse.table(name).path)).to_pyarrow_table())
    return table.sort_by([(each, "ascending") for each in order]).to_pylist()


def two_visits() -> list[Message]:
    """A tag comes, goes for two minutes, and comes back; a second tag's reads all arrive at once,
    ten minutes after they were made."""
    begin = received_at(0) - timedelta(minutes=9)
    seconds = [0, 10, 20, 140, 150]
    found = [
        message(read("FX-1", number, begin + timedelta(seconds=at)))
        for number, at in enumerate(seconds)
    ]
    return found + [
        message(
            read("FX-2", number, begin + timedelta(seconds=5 * number), tag="E28011602000B001"),
            topic="zebra/fx/2/reads",
        )
        for number in range(12)
    ]


@pytest.mark.accepts("S3.60")
def test_answers_are_those_of_a_count_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    store(tmp_path / "data", two_visits())
    pipeline = pipeline_of(tmp_path)
    progress = pipeline.run(spark, once=True)
    assert (progress.rows, progress.lag) == (17, 0)
    warehouse = pipeline.opened()
    visits = rows(warehouse, "presence", "hostName", "startedAt")
    assert [(each["idHex"], each["dwellSeconds"], each["reports"]) for each in visits] == [
        ("E28011602000A001", 20.0, 3),
        ("E28011602000A001", 10.0, 2),
        ("E28011602000B001", 55.0, 12),
    ]
    [batch] = rows(warehouse, "queued_deliveries", "batch_time")
    assert list(batch) == [
        "batch_time",
        "batch_size",
        "earliest_event",
        "latest_event",
        "event_span_seconds",
    ]
    assert (batch["batch_size"], batch["event_span_seconds"]) == (17, 150.0)
    [window] = rows(warehouse, "throughput", "windowStart")
    assert (window["environment"], window["messages"], window["topics"]) == ("zebra", 17, 2)
    [took] = rows(warehouse, "latency", "windowStart")
    assert took["reports"] == 17
    assert 390_000 <= float(str(took["p50Ms"])) <= float(str(took["longestMs"])) <= 541_000
    alive = rows(warehouse, "liveness", "device")
    assert [(each["device"], each["messages"]) for each in alive] == [
        ("zebra/fx/1", 5),
        ("zebra/fx/2", 12),
    ]
    with sqlite3.connect(warehouse.directory / "serving.db") as copy:
        served = copy.execute("SELECT dwellSeconds FROM presence ORDER BY hostName, startedAt")
        assert [row[0] for row in served] == [20.0, 10.0, 55.0]


class Rows:
    """What is already in tables, as a step sees it."""

    def __init__(self, **frames: DataFrame) -> None:
        self._frames = frames
        self.asked: dict[str, dict[str, object]] = {}
        """What was said of the tables' files that are not needed."""

    def rows(self, table: str, **at_least: object) -> DataFrame:
        self.asked[table] = at_least
        return self._frames[table]

    def kept(self, frame: DataFrame) -> DataFrame:
        return frame

    @property
    def taken(self) -> int:
        raise AssertionError("no answer asks for it")

    def earliest(self, _column: str) -> datetime | None:
        return None


def test_a_topic_without_the_level_of_environments_has_none(spark: SparkSession) -> None:
    told = [(received_at(0), topic, b"v") for topic in ("site/prod/x", "status", "site/prod")]
    frame = spark.createDataFrame(told, "timestamp timestamp, topic string, value binary")
    answers = Answers(60, 60, 2, 60, 10)
    found = throughput(frame, Rows(bronze=frame), answers).collect()
    assert {row["environment"]: row["messages"] for row in found} == {"prod": 2, "": 1}


def test_a_step_writes_the_sessions_that_it_changes_and_no_others(spark: SparkSession) -> None:
    answers = Answers(60, 60, 1, 60, 10)

    def spoken(*minutes: float) -> DataFrame:
        told = [("e/x", received_at(0) + timedelta(minutes=each)) for each in minutes]
        return spark.createDataFrame(told, "topic string, timestamp timestamp")

    def told(frame: DataFrame) -> list[tuple[object, ...]]:
        columns = ("startedAt", "endedAt", "messages", "silentSeconds", "gone")
        return sorted(tuple(row[name] for name in columns) for row in frame.collect())

    nothing = no_rows(spark, LIVENESS.columns)
    earlier, later = (0, 0.5, 10, 20, 21.5), (21, 30)
    before = (
        liveness(spoken(*earlier), Rows(liveness=nothing), answers).drop("gone").localCheckpoint()
    )
    step = told(liveness(spoken(*later), Rows(liveness=before), answers))
    whole = told(liveness(spoken(*earlier, *later), Rows(liveness=nothing), answers))
    assert [row for row in step if not row[4]] == whole[2:]
    assert [row[2:] for row in whole] == [
        (2, None, False),
        (1, 570.0, False),
        (3, 600.0, False),
        (1, 510.0, False),
    ]
    assert [row[2] for row in step if row[4]] == [1], "the one at 21.5 is joined to that at 20"


@pytest.mark.parametrize("hour", [0, 1])
def test_a_window_and_a_report_are_found_in_the_night_that_clocks_are_put_back(
    spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, hour: int
) -> None:
    # The monkeypatch of the zone ends before the clock is set again.
    request.addfinalizer(time.tzset)
    request.addfinalizer(monkeypatch.undo)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    # 02:00 to 03:00 comes twice in Berlin.
    begin = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
    told = [(begin + timedelta(minutes=minute), f"e/{minute}", b"v") for minute in (0, 1, 2)]
    every = spark.createDataFrame(told, "timestamp timestamp, topic string, value binary")
    fresh = every.where("topic <> 'e/0'")
    windows = throughput(fresh, Rows(bronze=every), Answers(60, 60, 1, 60, 10)).collect()
    assert [row["messages"] for row in windows] == [1, 1]
    [reads] = [each for each in read_catalog(None) if each.newest.table == "tag_reads"]
    earlier = begin - timedelta(seconds=reads.newest.duplicate_within_s - 90)
    tags = spark.createDataFrame(
        [(1, earlier, "FX", 1), (2, earlier - timedelta(hours=1), "FX", 2)],
        "offset long, receivedAt timestamp, hostName string, eventNum long",
    )
    nothing = no_rows(spark, DUPLICATES)
    past = Rows(tag_reads=tags, duplicates=nothing)
    first = begin + timedelta(minutes=1)
    assert [row["offset"] for row in _before(first, past, reads).collect()] == [1]
    horizon = first - timedelta(seconds=reads.newest.duplicate_within_s)
    needed = {"receivedAt": horizon}
    assert past.asked == {"tag_reads": needed, "duplicates": needed}


@pytest.mark.long
def test_answers_do_not_depend_on_the_steps_and_are_rebuilt_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    store(tmp_path / "data", mixed(150))
    pipeline = pipeline_of(tmp_path)
    pipeline.run(spark, once=True)
    store(tmp_path / "data", mixed(230)[150:], at=150)
    pipeline.run(spark, once=True)
    warehouse = pipeline.opened()

    def answers() -> dict[str, list[dict[str, object]]]:
        return {
            job.name: rows(warehouse, name, *shape.key)
            for job in pipeline.jobs
            for name, shape in job.makes.items()
            if shape.key
        }

    before = answers()
    assert sum(each["messages"] for each in before["throughput"]) == 230  # type: ignore[misc]
    for job in pipeline.jobs:
        for name in job.makes:
            shutil.rmtree(warehouse.table(name).path)
        catch_up(spark, warehouse, job)
    assert answers() == before
    serving = pipeline.serving()
    assert serving is not None
    pipeline.follow(warehouse, serving)
    with sqlite3.connect(serving.path) as copy:
        [served] = copy.execute("SELECT count(*) FROM presence").fetchone()
    assert served == len(before["presence"])
