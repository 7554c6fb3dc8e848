"""Silver: records as reports, each once, with a place for every record that is none.

Owns: the tables of parsed rows, `rejected` and `duplicates`.

Flow: bronze -> by topic to its schema -> parsed, rejected or repeated.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from holdfast.pipeline.jobs.job import Job, Past
from holdfast.pipeline.load.table import Shape, no_rows
from holdfast.pipeline.payloads.catalog import Versions
from holdfast.pipeline.payloads.judging import (
    DUPLICATES,
    NO_SCHEMA,
    RECORDS,
    REJECTED,
    judged,
    parsed_columns,
    repeats,
    report_key,
    topic_condition,
)
from holdfast.pipeline.payloads.schema import DUPLICATES_TABLE, REJECTED_TABLE

KEYS = StructType().add("key", "string").add("offset", "long").add("receivedAt", "timestamp")


def silver_job(schemas: Sequence[Versions]) -> Job:
    """The job that reads bronze by these schemas."""

    def transform(fresh: DataFrame, past: Past) -> Mapping[str, DataFrame]:
        return reports(fresh, past, schemas)

    tables = {each.newest.table: Shape(parsed_columns(each)) for each in schemas}
    tables |= {REJECTED_TABLE: Shape(REJECTED), DUPLICATES_TABLE: Shape(DUPLICATES)}
    return Job(
        "silver",
        "bronze",
        tables,
        transform,
        accounts=True,
        about="parse by schema, mark what is late, take each report once",
    )


def reports(fresh: DataFrame, past: Past, schemas: Sequence[Versions]) -> Mapping[str, DataFrame]:
    """The rows of each table."""
    found: dict[str, DataFrame] = {}
    rejected, duplicates = [], []
    unknown = f.lit(True)
    for versions in schemas:
        condition = topic_condition(versions.newest)
        # Held before anything is asked of it: no filter makes Spark plan all of it anew, or parse a
        # payload twice.
        rows = past.kept(judged(fresh.where(unknown & condition), versions))
        unknown = unknown & ~condition
        rejected.append(rows.where(f.col("rule").isNotNull()).select(*REJECTED.names))
        good = rows.where(f.col("rule").isNull())
        if versions.newest.key:
            before = _before(fresh, past, versions)
            again = past.kept(repeats(good, before, versions.newest))
            # Once Spark knows how few they are, it looks them up, and sorts no whole rows for it.
            again.count()
            duplicates.append(
                good.join(again, "offset")
                .withColumn("key", report_key(versions.newest))
                .select(*DUPLICATES.names)
            )
            good = good.join(again, "offset", "left_anti")
        found[versions.newest.table] = good.select(*parsed_columns(versions).names)
    rest = fresh.where(unknown).select(*RECORDS)
    rejected.append(
        rest.select(
            "offset",
            "topic",
            f.col("timestamp").alias("receivedAt"),
            "value",
            f.lit("").alias("schema"),
            f.lit(NO_SCHEMA).alias("rule"),
        )
    )
    found[REJECTED_TABLE] = reduce(DataFrame.unionByName, rejected)
    empty = no_rows(fresh.sparkSession, DUPLICATES)
    found[DUPLICATES_TABLE] = reduce(DataFrame.unionByName, duplicates, empty)
    return found


def _before(fresh: DataFrame, past: Past, versions: Versions) -> DataFrame:
    """Keys of reports that those of this step may repeat."""
    schema = versions.newest
    first = fresh.agg(f.min("timestamp")).first() if schema.key else None
    if first is None or first[0] is None:
        return no_rows(fresh.sparkSession, KEYS)
    # In UTC: a time of the machine's zone comes twice in the night that clocks are put back.
    since = first[0].astimezone(UTC)
    horizon = f.lit(since) - f.expr(f"INTERVAL {schema.duplicate_within_s} SECONDS")
    kept = past.rows(schema.table).where(f.col("receivedAt") >= horizon)
    again = past.rows(DUPLICATES_TABLE).where(f.col("receivedAt") >= horizon)
    again = again.where(f.col("schema") == schema.name)
    return kept.select(report_key(schema).alias("key"), "offset", "receivedAt").unionByName(
        again.select("key", "offset", "receivedAt")
    )
