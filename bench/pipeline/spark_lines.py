"""What is measured with Spark: whole queries, and streams inside their triggers.

Owns: how a rate is taken. Every rate is rows a second, the best of some repetitions.
"""

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, MapType, StringType, TimestampType

from holdfast import system

REPETITIONS = 3
BATCHES = 5
WARM_UPS = 3
"""Runs before the first that counts: the JVM compiles meanwhile."""
FLOOR_BATCHES = 20


def used(rows: DataFrame) -> DataFrame:
    """One row that no column of these could be left out for."""
    sums = [f.sum(_weight(field.dataType, f.col(field.name))) for field in rows.schema.fields]
    return rows.agg(*sums)


def _weight(kind: object, column: Column) -> Column:
    if isinstance(kind, (StringType, BinaryType)):
        return f.length(column)
    if isinstance(kind, (MapType, ArrayType)):
        return f.size(column)
    if isinstance(kind, (BooleanType, TimestampType)):
        return column.cast("long")
    return column


def batch_rates(
    ours: Callable[[], DataFrame], theirs: Callable[[], DataFrame], count: int
) -> tuple[float, float]:
    """Rows a second of two queries that use every column, each in turn, so that both see the same
    machine; the first runs warm up."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(BATCHES + WARM_UPS):
        for rows, took in zip((ours, theirs), times, strict=True):
            began = system.monotonic_s()
            used(rows()).collect()
            took.append(system.monotonic_s() - began)
    mine, others = (count / min(took[WARM_UPS:]) for took in times)
    return mine, others


def stream_rates(
    ours: Callable[[Path], StreamingQuery],
    theirs: Callable[[Path], StreamingQuery],
    checkpoint: Path,
) -> tuple[float, float]:
    """Rows a second inside the triggers of two streams that take what is there and end, each in
    turn: the JVM goes on compiling for minutes, and whoever came second had the quicker one."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPETITIONS + 1):
        for start, found in zip((ours, theirs), rates, strict=True):
            shutil.rmtree(checkpoint, ignore_errors=True)
            found.append(_rate(start(checkpoint)))
    mine, others = (max(found[1:]) for found in rates)
    return mine, others


def _rate(query: StreamingQuery) -> float:
    query.awaitTermination()
    triggers = [each for each in query.recentProgress if each.numInputRows]
    # The first one pays for what starts once.
    triggers = triggers[1:] or triggers
    rows = sum(each.numInputRows for each in triggers)
    took_ms = sum(each.durationMs["triggerExecution"] for each in triggers)
    return rows * 1000 / took_ms if took_ms else 0


def to_noop(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Starts a stream whose rows go nowhere."""
    return (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def to_parquet(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Starts a stream into Spark's own Parquet sink."""
    table = checkpoint.with_name(f"{checkpoint.name}-files")
    shutil.rmtree(table, ignore_errors=True)
    return (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(table))
        .trigger(availableNow=True)
        .start()
    )


def floor_ms(rows: DataFrame, checkpoint: Path) -> tuple[float, float]:
    """Medians of a small micro-batch, back to back: the whole, and `latestOffset` of it."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    began = system.monotonic_s()
    while len(taken := [each for each in query.recentProgress if each.numInputRows]) < (
        FLOOR_BATCHES + 5
    ):
        if system.monotonic_s() - began > 60:
            break
        query.awaitTermination(1)
    query.stop()
    last = taken[-FLOOR_BATCHES:]
    whole = statistics.median(each.durationMs["triggerExecution"] for each in last)
    return whole, statistics.median(each.durationMs["latestOffset"] for each in last)
