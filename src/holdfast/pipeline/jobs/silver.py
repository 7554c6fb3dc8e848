"""Silver: records as reports, each once, with a place for every record that is none.

Owns: the tables of parsed rows, `rejected` and `duplicates`.

Flow: bronze -> by topic to its schema -> parsed, rejected or repeated.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.pipeline.jobs.job import NO_ROWS, Job, NoRows, Past
from holdfast.pipeline.load.table import Shape
from holdfast.pipeline.payloads.catalog import Versions
from holdfast.pipeline.payloads.judging import (
    DUPLICATES,
    NO_SCHEMA,
    REJECTED,
    judged,
    parsed_columns,
    repeats,
    report_key,
    topic_condition,
)
from holdfast.pipeline.payloads.schema import DUPLICATES_TABLE, REJECTED_TABLE


def silver_job(schemas: Sequence[Versions]) -> Job:
    """The job that reads bronze by these schemas."""

    def transform(fresh: DataFrame, past: Past) -> Mapping[str, DataFrame | NoRows]:
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


def reports(
    fresh: DataFrame, past: Past, schemas: Sequence[Versions]
) -> Mapping[str, DataFrame | NoRows]:
    """The rows of each table."""
    found: dict[str, DataFrame | NoRows] = {}
    rejected: list[DataFrame] = []
    duplicates: list[DataFrame] = []
    unknown, known = f.lit(True), 0
    for versions in schemas:
        condition = topic_condition(versions.newest)
        # Held before anything is asked of it: no filter makes Spark plan all of it anew, or parse a
        # payload twice.
        rows = past.kept(judged(fresh.where(unknown & condition), versions))
        unknown = unknown & ~condition
        count, broken, first = _told(rows)
        known += count
        if broken:
            rejected.append(rows.where(f.col("rule").isNotNull()).select(*REJECTED.names))
        good = rows.where(f.col("rule").isNull()) if broken else rows
        if versions.newest.key and first is not None:
            again = past.kept(repeats(good, _before(first, past, versions), versions.newest))
            # Once Spark knows how few they are, it looks them up, and sorts no whole rows for it.
            if again.count():
                duplicates.append(_duplicates(good, again, versions))
                good = good.join(again, "offset", "left_anti")
        names = parsed_columns(versions).names
        found[versions.newest.table] = good.select(*names) if count > broken else NO_ROWS
    if known < past.taken:
        rejected.append(_of_no_schema(fresh.where(unknown)))
    found[REJECTED_TABLE] = _together(rejected)
    found[DUPLICATES_TABLE] = _together(duplicates)
    return found


def _told(rows: DataFrame) -> tuple[int, int, datetime | None]:
    """How many there are, how many of them broke a rule, and when the first of the others came."""
    came = f.when(f.col("rule").isNull(), f.col("receivedAt"))
    told = rows.agg(f.count(f.lit(1)), f.count("rule"), f.min(came)).first()
    count, broken, first = told or (0, 0, None)
    # In UTC: a time of the machine's zone comes twice in the night that clocks are put back.
    return count, broken, None if first is None else first.astimezone(UTC)


def _duplicates(good: DataFrame, again: DataFrame, versions: Versions) -> DataFrame:
    found = good.join(again, "offset").withColumn("key", report_key(versions.newest))
    return found.select(*DUPLICATES.names)


def _of_no_schema(records: DataFrame) -> DataFrame:
    return records.select(
        "offset",
        "topic",
        f.col("timestamp").alias("receivedAt"),
        "value",
        f.lit("").alias("schema"),
        f.lit(NO_SCHEMA).alias("rule"),
    )


def _together(frames: Sequence[DataFrame]) -> DataFrame | NoRows:
    return reduce(DataFrame.unionByName, frames) if frames else NO_ROWS


def _before(first: datetime, past: Past, versions: Versions) -> DataFrame:
    """Keys of reports that those from this time on may repeat."""
    schema = versions.newest
    horizon = first - timedelta(seconds=schema.duplicate_within_s)
    since = f.col("receivedAt") >= f.lit(horizon)
    kept = past.rows(schema.table, receivedAt=horizon).where(since)
    again = past.rows(DUPLICATES_TABLE, receivedAt=horizon).where(since)
    again = again.where(f.col("schema") == schema.name)
    return kept.select(report_key(schema).alias("key"), "offset", "receivedAt").unionByName(
        again.select("key", "offset", "receivedAt")
    )
