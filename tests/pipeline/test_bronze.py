"""The bronze table: every record once, whatever is repeated or lost on the way."""

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.pipeline.jobs.bronze import BronzePlan, start_available_now
from holdfast.pipeline.load.delta import LogTable
from tests.builders.stored import Message, store


def rows_of(*offsets: int) -> pa.Table:
    return pa.table({"offset": pa.array(offsets, pa.int64()), "value": [b"x"] * len(offsets)})


def offsets_in(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["offset"].to_pylist())


def test_a_batch_that_comes_again_adds_nothing(tmp_path: Path) -> None:
    table = LogTable(str(tmp_path / "table"), "epoch")
    assert table.version() == -1
    assert table.append(rows_of(0, 1, 2)) == 3
    assert table.append(rows_of(0, 1, 2)) == 0
    assert table.append(rows_of(1, 2, 3, 5)) == 2
    assert table.append(rows_of()) == 0
    assert table.version() == 5
    assert offsets_in(table.path) == [0, 1, 2, 3, 5]


def test_another_log_has_a_version_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    assert LogTable(path, "first").append(rows_of(0, 1)) == 2
    assert LogTable(path, "second").append(rows_of(0)) == 1
    assert offsets_in(path) == [0, 0, 1]


def test_the_version_outlives_compaction(tmp_path: Path) -> None:
    table = LogTable(str(tmp_path / "table"), "epoch")
    for offset in range(5):
        table.append(rows_of(offset))
    delta = DeltaTable(table.path)
    delta.optimize.compact()
    delta.create_checkpoint()
    assert table.append(rows_of(3, 4, 5)) == 1
    assert offsets_in(table.path) == [0, 1, 2, 3, 4, 5]


def run(spark: SparkSession, plan: BronzePlan) -> int:
    query = start_available_now(spark, plan)
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_runs_add_the_rest_and_a_lost_checkpoint_costs_only_reading(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    source = {"dataDir": str(log), "subscribe": "#", "maxOffsetsPerTrigger": "30"}
    plan = BronzePlan(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"))
    assert run(spark, plan) == 100
    store(log, messages[:20], at=100)
    assert run(spark, plan) == 20
    assert offsets_in(plan.table) == list(range(120))

    shutil.rmtree(plan.checkpoint)
    other_size = BronzePlan({**source, "maxOffsetsPerTrigger": "47"}, plan.table, plan.checkpoint)
    store(log, messages[:5], at=120)
    assert run(spark, other_size) == 125
    assert offsets_in(plan.table) == list(range(125))
    kept = DeltaTable(plan.table).to_pyarrow_table().sort_by("offset")
    assert kept["value"].to_pylist()[:100] == [message.value for message in messages]
