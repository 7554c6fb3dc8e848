"""What is measured, line by line, each beside what it is compared with.

Owns: the lines, and what they stand on. Never: starts a broker or Spark, or keeps a result.
"""

import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from bench.macro import standstill
from bench.macro.measurement import GENERATOR
from bench.pipeline import filling, ready
from bench.pipeline.result import Measured
from bench.pipeline.spark_lines import (
    REPETITIONS,
    batch_rates,
    floor_ms,
    stream_rates,
    to_noop,
    to_parquet,
    used,
)
from holdfast import system
from holdfast.pipeline.configuration import Configuration, LogEntries, RunEntries
from holdfast.pipeline.jobs.bronze import start_query
from holdfast.pipeline.running import Pipeline
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import chunks
from holdfast.reading.remote import RemoteLog
from tests.process import BrokerProcess

TRIGGERS = ((1_000_000, 0.6), (200_000, 0.45))
"""Rows a trigger, and the least ratio of the stream to that of Parquet files."""
BATCH_ROWS = 1_000_000
"""Rows of a batch that is read."""
WRITTEN = 500_000
"""Rows that a batch writes."""
WOKEN_SECONDS = 3
Rows = Callable[[], DataFrame]


@dataclass(frozen=True)
class Ground:
    """What every line stands on."""

    spark: SparkSession
    directory: Path
    broker: BrokerProcess
    address: str
    rows: int

    def read(self, **options: str) -> DataFrame:
        """Our rows as a batch, over HTTP unless `dataDir` is among the options."""
        where = {} if "dataDir" in options else {"broker": self.address}
        given = {"subscribe": "#", **where, **options}
        return self.spark.read.format("holdfast").options(**given).load()

    def stream(self, **options: str) -> DataFrame:
        """Our rows as a stream from the beginning."""
        given = {"subscribe": "#", "startingOffsets": "earliest", "broker": self.address, **options}
        return self.spark.readStream.format("holdfast").options(**given).load()

    def parquet(self, files: int, **options: str) -> Path:
        """The same rows in files, or what these options choose of them."""
        directory = self.directory / "-".join(["parquet", str(files), *options.values()])
        if not directory.exists():
            filling.as_parquet(self.read(**options), directory, files)
        return directory


def batches(ground: Ground) -> Iterator[Measured]:
    """Batches, each beside Spark's Parquet reader."""
    count = min(ground.rows, BATCH_ROWS)
    first = {"endingOffsets": str(count)}
    spark, files = ground.spark, ground.parquet(2, **first)
    data_dir = str(ground.broker.data_directory)

    def beside(title: str, ours: Rows, theirs: Rows, at_least: float | None) -> Measured:
        mine, others = batch_rates(ours, theirs, count)
        return Measured(title, "rows/s", mine, "Parquet", others, at_least)

    def read(**options: str) -> Rows:
        return lambda: ground.read(**first, **options)

    def all_columns() -> DataFrame:
        return filling.parquet(spark, files)

    yield beside("batch, all columns, HTTP", read(), all_columns, 0.6)
    yield beside("batch, all columns, dataDir", read(dataDir=data_dir), all_columns, 0.8)
    lie_ready = ready.rows(
        spark, ground.read(dataDir=data_dir, **first), ground.directory / "ready"
    )
    yield beside("a source in Python whose batches lie ready", lambda: lie_ready, all_columns, None)
    yield beside(
        "batch, one column of ten",
        read(columns="offset"),
        lambda: all_columns().select("offset"),
        0.5,
    )


def push_down(ground: Ground) -> Iterator[Measured]:
    """A filter on the topic beside the option that says the same."""
    topic = filling.ONE_READER
    where, chosen = batch_rates(
        lambda: ground.read(pushdown="true").where(f"topic = '{topic}'"),
        lambda: ground.read(subscribe=topic),
        ground.rows // filling.READERS,
    )
    yield Measured("WHERE topic = ...", "rows/s", where, "subscribe", chosen, 0.8)


def streams(ground: Ground) -> Iterator[Measured]:
    """Streams to nowhere, beside Spark's stream of Parquet files."""
    for trigger, at_least in TRIGGERS:
        files = ground.parquet(max(ground.rows // trigger, 1))
        schema = filling.parquet(ground.spark, files).schema

        def theirs(
            checkpoint: Path, files: Path = files, schema: StructType = schema
        ) -> StreamingQuery:
            reader = ground.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return to_noop(reader.parquet(str(files)), checkpoint)

        def ours(checkpoint: Path, trigger: int = trigger) -> StreamingQuery:
            # As many rows as are asked for, whatever they weigh.
            bounds = {"maxOffsetsPerTrigger": str(trigger), "maxBytesPerTrigger": "1g"}
            return to_noop(ground.stream(**bounds), checkpoint)

        title = f"stream to noop, {trigger:,} rows a trigger"
        mine, others = stream_rates(ours, theirs, ground.directory / "checkpoint")
        yield Measured(title, "rows/s", mine, "Parquet files", others, at_least)


def floor(ground: Ground) -> Iterator[Measured]:
    """The least that a micro-batch takes, beside `rate-micro-batch`."""
    checkpoint = ground.directory / "checkpoint"
    rate = ground.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    theirs, _ = floor_ms(rate, checkpoint)
    ours, latest = floor_ms(ground.stream(maxOffsetsPerTrigger="10"), checkpoint)
    yield Measured("floor of a micro-batch", "ms", ours, "rate-micro-batch", theirs, None, 30)
    yield Measured("latestOffset", "ms", latest, at_most=5)


def tables(ground: Ground) -> Iterator[Measured]:
    """Into the bronze table, beside Spark's Parquet sink that the same stream feeds."""
    for trigger in (200_000, 500_000):

        def ours(checkpoint: Path, trigger: int = trigger) -> StreamingQuery:
            folder = ground.directory / "pipeline"
            shutil.rmtree(folder, ignore_errors=True)
            entries = LogEntries(broker=ground.address, subscribe="#")
            run = RunEntries(rows_per_batch=trigger)
            configuration = Configuration(folder=ground.directory, log=entries, run=run)
            warehouse = Pipeline(configuration).opened()
            return start_query(ground.spark, warehouse, configuration.source())

        def theirs(checkpoint: Path, trigger: int = trigger) -> StreamingQuery:
            return to_parquet(ground.stream(maxOffsetsPerTrigger=str(trigger)), checkpoint)

        title = f"stream to the bronze table, {trigger:,} rows a trigger"
        mine, others = stream_rates(ours, theirs, ground.directory / "tables")
        yield Measured(title, "rows/s", mine, "Spark's Parquet sink", others, 0.85)
    yield Measured("the driver's Python after it", "MiB", resident_mib(os.getpid()), at_most=300)


def memory(ground: Ground) -> Iterator[Measured]:
    """What the broker takes more while four tasks read everything."""
    process = ground.broker.process_identifier
    before, seen = resident_mib(process), [0.0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            seen.append(resident_mib(process))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        used(ground.read(minPartitions="4")).collect()
    finally:
        done.set()
        looking.join()
    title = "the broker beyond itself, while four read"
    yield Measured(title, "MiB", max(seen), "before", before, None, 128)


def writer(ground: Ground) -> Iterator[Measured]:
    """Rows that a batch writes, beside one publisher at QoS 1 whose messages come to one
    subscriber."""
    raw = generated(ground, "pair", "--payload", "190")
    rows = ground.read(endingOffsets=str(WRITTEN), columns="value").cache()
    count = rows.count()
    times = []
    for _ in range(REPETITIONS + 1):
        began = system.monotonic_s()
        target = rows.write.format("holdfast").mode("append")
        target.option("broker", ground.address).option("topic", "bench/written").save()
        times.append(system.monotonic_s() - began)
    ours, theirs = count / min(times), raw["received"] / raw["seconds"]
    yield Measured("writer, a batch", "rows/s", ours, "one publisher, QoS 1", theirs, 0.5)


def publisher(ground: Ground) -> Iterator[Measured]:
    """A publisher at QoS 1 beside one reader over HTTP at full speed, and without it; and somebody
    who only wakes, since a message has to wake one thread after the other."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    p99s: dict[bool, list[float]] = {False: [], True: []}
    woken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPETITIONS):
        for is_read in (False, True):
            with reading(ground) if is_read else nullcontext():
                raw = generated(ground, "pair", "--payload", "190")
                rates[is_read].append(raw["received"] / raw["seconds"])
                raw = generated(ground, "latency", "--rate", "1000")
                p99s[is_read].append(raw["latency_p99_us"] / 1000)
                with standstill.noted(ground.directory, in_turn=True) as samples:
                    time.sleep(WOKEN_SECONDS)
                woken[is_read].append(standstill.p99_us(samples) / 1000)
    read, alone = max(rates[True]), max(rates[False])
    yield Measured("publisher beside a reader", "messages/s", read, "alone", alone, 0.8)
    slow, usual = statistics.median(p99s[True]), statistics.median(p99s[False])
    title = "its p99 at 1 000 messages a second"
    yield Measured(title, "ms", slow, "alone", usual, at_most_times=2)
    late, usually = statistics.median(woken[True]), statistics.median(woken[False])
    title = "who only wakes is late there, p99"
    yield Measured(title, "ms", late, "without a reader", usually)


@contextmanager
def reading(ground: Ground) -> Iterator[None]:
    """One reads the log from its beginning to its end, over and over."""
    done, log = threading.Event(), RemoteLog(ground.address)

    def read() -> None:
        while not done.is_set():
            for _ in chunks(log, Criteria(filters=("#",)), 0, ground.rows):
                if done.is_set():
                    break

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def generated(ground: Ground, load: str, *more: str) -> dict[str, float]:
    """What the load generator counted in three seconds at QoS 1."""
    command = [str(GENERATOR), load, "--qos", "1", "--port", str(ground.broker.port)]
    command += ["--seconds", "3", "--warm-up", "1", *more]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    raw: dict[str, float] = json.loads(answer.stdout)
    return raw


def resident_mib(process: int) -> float:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


LINES: dict[str, Callable[[Ground], Iterator[Measured]]] = {
    "memory": memory,  # First: a broker that has been read has grown already.
    "batches": batches,
    "push-down": push_down,
    "streams": streams,
    "floor": floor,
    "tables": tables,
    "writer": writer,
    "publisher": publisher,
}
