"""Gold: answers. Presence and dwell of tags, liveness of devices, latency, queued delivery, rates.

Owns: what each answer means, and its table.

Sessions join those that the table has; windows that new rows touch are counted again from the
input. So each table is a function of its input's rows, whatever the steps were.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.pipeline.jobs.acknowledged import ACKNOWLEDGED
from holdfast.pipeline.jobs.job import Job, Past
from holdfast.pipeline.jobs.sessions import joined, near, seconds_between, sessions
from holdfast.pipeline.load.files import EPOCH
from holdfast.pipeline.load.table import Shape

BUCKET_OFFSETS = 64
"""Ranges and messages are joined by so many offsets: a range of many is told for each of them, and
each message of one is held against each range that begins or ends there."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the answers are asked with."""

    presence_gap_s: float
    """A tag that was not read for so long has gone."""
    liveness_gap_s: float
    """A device that said nothing for so long was silent."""
    environment_level: int
    """The level of a topic that names the environment, from 1."""
    window_s: int
    """Rates and latencies are counted in windows of so many seconds."""
    queued_rows_minimum: int
    """Reads within one second of arrival that are worth a look."""


def _shape(key: tuple[str, ...], **columns: object) -> Shape:
    fields = [StructField(name, kind) for name, kind in columns.items()]  # type: ignore[arg-type]
    return Shape(StructType(fields), key)


PRESENCE = _shape(
    ("hostName", "idHex", "startedAt"),
    hostName=StringType(),
    idHex=StringType(),
    startedAt=TimestampType(),
    endedAt=TimestampType(),
    dwellSeconds=DoubleType(),
    reports=LongType(),
    reads=LongType(),
    strongestRssi=IntegerType(),
)
LIVENESS = _shape(
    ("device", "startedAt"),
    device=StringType(),
    startedAt=TimestampType(),
    endedAt=TimestampType(),
    messages=LongType(),
    silentSeconds=DoubleType(),
)
LATENCY = _shape(
    ("environment", "windowStart"),
    environment=StringType(),
    windowStart=TimestampType(),
    reports=LongType(),
    late=LongType(),
    p50Ms=DoubleType(),
    p95Ms=DoubleType(),
    p99Ms=DoubleType(),
    longestMs=DoubleType(),
)
CONSUMER_LATENCY = _shape(
    ("queue", "environment", "windowStart"),
    queue=StringType(),
    environment=StringType(),
    windowStart=TimestampType(),
    messages=LongType(),
    p50Ms=DoubleType(),
    p95Ms=DoubleType(),
    p99Ms=DoubleType(),
    longestMs=DoubleType(),
)
QUEUED = _shape(
    ("batch_time",),
    batch_time=TimestampType(),
    batch_size=LongType(),
    earliest_event=TimestampType(),
    latest_event=TimestampType(),
    event_span_seconds=DoubleType(),
)
THROUGHPUT = _shape(
    ("environment", "windowStart"),
    environment=StringType(),
    windowStart=TimestampType(),
    messages=LongType(),
    bytes=LongType(),
    topics=LongType(),
)


def gold_jobs(answers: Answers) -> list[Job]:
    """A job for each answer."""

    def job(name: str, reads: str, shape: Shape, transform: object, about: str) -> Job:
        def made(fresh: DataFrame, past: Past) -> Mapping[str, DataFrame]:
            return {name: transform(fresh, past, answers)}  # type: ignore[operator]

        return Job(name, reads, {name: shape}, made, about=about)

    return [
        job("presence", "tag_reads", PRESENCE, presence, "when each tag was at each reader"),
        job("liveness", "bronze", LIVENESS, liveness, "when each device spoke, and its silences"),
        job("latency", "tag_reads", LATENCY, latency, "how long reads took from device to log"),
        job("queued_deliveries", "tag_reads", QUEUED, queued, "what arrived at once after a wait"),
        job("throughput", "bronze", THROUGHPUT, throughput, "messages of each environment"),
    ]


def consumer_job(answers: Answers) -> Job:
    """The answer that needs queues to be named."""

    def made(fresh: DataFrame, past: Past) -> Mapping[str, DataFrame]:
        return {"consumer_latency": consumer_latency(fresh, past, answers)}

    return Job(
        "consumer_latency",
        ACKNOWLEDGED,
        {"consumer_latency": CONSUMER_LATENCY},
        made,
        about="how long messages took from the log until a queue was done with them",
    )


def presence(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """When each tag was at each reader, and for how long."""
    by, gap_s = ("hostName", "idHex"), answers.presence_gap_s
    measures = {
        "reports": f.count(f.lit(1)),
        "reads": f.sum(f.coalesce("reads", f.lit(1))),
        "strongestRssi": f.max("peakRssi"),
    }
    found = past.kept(sessions(fresh, by, "readAt", gap_s, measures))
    before = past.kept(near(past.rows("presence"), found, by, gap_s))
    merges = {
        "reports": f.sum("reports"),
        "reads": f.sum("reads"),
        "strongestRssi": f.max("strongestRssi"),
    }
    rows = joined(found, before, by, gap_s, merges)
    dwell = seconds_between("startedAt", "endedAt").alias("dwellSeconds")
    return rows.select(*by, "startedAt", "endedAt", dwell, *merges, "gone")


def liveness(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """When each device spoke, and how long it was silent before. A device is its topic without the
    last level."""
    gap_s = answers.liveness_gap_s
    device = f.regexp_replace("topic", "/[^/]*$", "").alias("device")
    spoken = fresh.select(device, "timestamp")
    found = past.kept(
        sessions(spoken, ["device"], "timestamp", gap_s, {"messages": f.count(f.lit(1))})
    )
    # All sessions of these devices: a silence is counted from the one before.
    before = past.kept(past.rows("liveness").join(found.select("device").distinct(), ["device"]))
    rows = joined(found, before, ["device"], gap_s, {"messages": f.sum("messages")})
    order = Window.partitionBy("device", "gone").orderBy("startedAt")
    last = f.lag("endedAt").over(order)
    silent = (f.unix_micros("startedAt") - f.unix_micros(last)) / f.lit(1_000_000.0)
    rows = rows.select(*LIVENESS.columns.names[:-1], silent.alias("silentSeconds"), "gone")
    # Most of these sessions are as they were.
    return rows.subtract(before.select(*LIVENESS.columns.names, f.lit(False).alias("gone")))


def latency(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """From the device's clock to the log, for each window of arrival."""
    rows = _touched(fresh, past, "tag_reads", "receivedAt", answers.window_s)
    took = (f.unix_micros("receivedAt") - f.unix_micros("readAt")) / f.lit(1_000.0)
    rows = rows.select(
        _environment(answers),
        window_start("receivedAt", answers.window_s).alias("windowStart"),
        "late",
        took.alias("took"),
    )
    return rows.groupBy("environment", "windowStart").agg(
        f.count(f.lit(1)).alias("reports"),
        f.sum(f.col("late").cast("long")).alias("late"),
        f.percentile("took", 0.5).alias("p50Ms"),
        f.percentile("took", 0.95).alias("p95Ms"),
        f.percentile("took", 0.99).alias("p99Ms"),
        f.max("took").alias("longestMs"),
    )


def consumer_latency(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """From the log to the acknowledgement that is on record, for each window of these."""
    timed = f.col("acknowledgedAt").isNotNull()
    rows = _touched(fresh.where(timed), past, ACKNOWLEDGED, "acknowledgedAt", answers.window_s)
    ranges = past.kept(rows.where(timed).drop("offset"))
    lowest = ranges.agg(f.min("begin")).first()
    above = {} if lowest is None or lowest[0] is None else {"offset": lowest[0]}
    messages = past.rows("bronze", **above).where(f.col("qos") > 0)
    messages = messages.select("offset", "topic", "timestamp", _bucket("offset").alias("bucket"))
    buckets = f.sequence(_bucket("begin"), _bucket(f.col("end") - 1))
    within = (f.col("offset") >= f.col("begin")) & (f.col("offset") < f.col("end"))
    found = messages.join(ranges.withColumn("bucket", f.explode(buckets)), "bucket")
    found = found.where(within & f.expr("topic rlike topics"))
    # Filters of a queue may overlap.
    found = found.dropDuplicates(["queue", "offset"])
    took = (f.unix_micros("acknowledgedAt") - f.unix_micros("timestamp")) / f.lit(1_000.0)
    found = found.select(
        "queue",
        _environment(answers),
        window_start("acknowledgedAt", answers.window_s).alias("windowStart"),
        took.alias("took"),
    )
    return found.groupBy("queue", "environment", "windowStart").agg(
        f.count(f.lit(1)).alias("messages"),
        f.percentile("took", 0.5).alias("p50Ms"),
        f.percentile("took", 0.95).alias("p95Ms"),
        f.percentile("took", 0.99).alias("p99Ms"),
        f.max("took").alias("longestMs"),
    )


def queued(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """Reads that arrived within one second, with the span of their own times: a long span is
    evidence of delivery after a wait."""
    rows = _touched(fresh, past, "tag_reads", "receivedAt", 1)
    batches = rows.groupBy(window_start("receivedAt", 1).alias("batch_time")).agg(
        f.count(f.lit(1)).alias("batch_size"),
        f.min("readAt").alias("earliest_event"),
        f.max("readAt").alias("latest_event"),
    )
    span = seconds_between("earliest_event", "latest_event").alias("event_span_seconds")
    return batches.where(f.col("batch_size") > answers.queued_rows_minimum).select("*", span)


def throughput(fresh: DataFrame, past: Past, answers: Answers) -> DataFrame:
    """Messages and bytes of each environment in each window."""
    rows = _touched(fresh, past, "bronze", "timestamp", answers.window_s)
    rows = rows.select(
        _environment(answers),
        window_start("timestamp", answers.window_s).alias("windowStart"),
        "topic",
        f.length("value").alias("size"),
    )
    return rows.groupBy("environment", "windowStart").agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum("size").alias("bytes"),
        f.count_distinct("topic").alias("topics"),
    )


def _bucket(offset: str | Column) -> Column:
    return f.floor((f.col(offset) if isinstance(offset, str) else offset) / BUCKET_OFFSETS)


def _environment(answers: Answers) -> Column:
    """Empty for a topic that has no such level."""
    level = f.try_element_at(f.split("topic", "/"), f.lit(answers.environment_level))
    return f.coalesce(level, f.lit("")).alias("environment")


def window_start(time: str, seconds: int) -> Column:
    """The beginning of the window that a time is in; windows are counted from 1970."""
    return f.timestamp_seconds(f.floor(f.unix_seconds(time) / seconds) * seconds)


def _touched(fresh: DataFrame, past: Past, table: str, time: str, seconds: int) -> DataFrame:
    """All rows of the windows that new rows are in, and of those after."""
    first = past.earliest(time) or _earliest(fresh, time)
    if first is None:
        return fresh
    window = timedelta(seconds=seconds)
    since = EPOCH + (first - EPOCH) // window * window
    rows = past.rows(table, **{time: since})
    return rows.where(f.col(time) >= f.lit(since))


def _earliest(rows: DataFrame, time: str) -> datetime | None:
    found = rows.agg(f.min(time)).first()
    # In UTC: a time of the machine's zone comes twice in the night that clocks are put back.
    return None if found is None or found[0] is None else found[0].astimezone(UTC)
