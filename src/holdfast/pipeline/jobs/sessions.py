"""Put moments together to sessions: stretches of time without a long gap.

Owns: how sessions of new rows join those that a table has already.

Invariant: the sessions of a set of moments do not depend on the order or the steps in which the
moments came.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f


def interval(seconds: float) -> Column:
    """So many seconds."""
    return f.expr(f"INTERVAL {seconds} SECONDS")


def sessions(
    moments: DataFrame, by: Sequence[str], time: str, gap_s: float, measures: Mapping[str, Column]
) -> DataFrame:
    """`by`, `startedAt`, `endedAt` and the measures of each session."""
    window = f.session_window(time, f"{gap_s} seconds").alias("session")
    return (
        moments.groupBy(*by, window)
        .agg(
            f.min(time).alias("startedAt"),
            f.max(time).alias("endedAt"),
            *(column.alias(name) for name, column in measures.items()),
        )
        .drop("session")
    )


def joined(
    fresh: DataFrame,
    before: DataFrame,
    by: Sequence[str],
    gap_s: float,
    merges: Mapping[str, Column],
) -> DataFrame:
    """Sessions of `before` and `fresh` as they are together, and, with `gone`, those of `before`
    whose key is no session's any more."""
    names = [*by, "startedAt", "endedAt", *merges]
    together = before.select(*names).unionByName(fresh.select(*names))
    order = Window.partitionBy(*by).orderBy("startedAt")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    ended = f.max("endedAt").over(earlier)
    begins = f.coalesce(f.col("startedAt") > ended + interval(gap_s), f.lit(True))
    counted = together.withColumn("begins", begins.cast("int")).withColumn(
        "number", f.sum("begins").over(order.rowsBetween(Window.unboundedPreceding, 0))
    )
    merged = (
        counted.groupBy(*by, "number")
        .agg(
            f.min("startedAt").alias("startedAt"),
            f.max("endedAt").alias("endedAt"),
            *(column.alias(name) for name, column in merges.items()),
        )
        .drop("number")
        .withColumn("gone", f.lit(False))
    )
    key = [*by, "startedAt"]
    absorbed = before.select(*names).join(merged.select(*key), key, "left_anti")
    return merged.unionByName(absorbed.withColumn("gone", f.lit(True)))


def near(before: DataFrame, fresh: DataFrame, by: Sequence[str], gap_s: float) -> DataFrame:
    """Sessions of `before` that those of `fresh` may join."""
    reach = fresh.groupBy(*by).agg(
        (f.min("startedAt") - interval(gap_s)).alias("low"),
        (f.max("endedAt") + interval(gap_s)).alias("high"),
    )
    close = (f.col("endedAt") >= f.col("low")) & (f.col("startedAt") <= f.col("high"))
    return before.join(reach, [*by], "inner").where(close).drop("low", "high")


def seconds_between(begin: str, end: str) -> Column:
    """How long it was."""
    return (f.unix_micros(end) - f.unix_micros(begin)) / f.lit(1_000_000.0)
