"""`python -m bench.pipeline`: fill a log, measure line by line, write the figures."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.macro import machine
from bench.macro.measurement import GENERATOR
from bench.pipeline import filling
from bench.pipeline.result import Measured, Result
from bench.pipeline.spark_lines import (
    REPETITIONS,
    batch_rate,
    floor_ms,
    stream_rate,
    to_noop,
    to_parquet,
    used,
)
from holdfast import system
from holdfast.pipeline.configuration import Configuration, LogEntries, RunEntries
from holdfast.pipeline.jobs.bronze import start_query
from holdfast.pipeline.running import Pipeline
from holdfast.pipeline.session import local_session
from tests.process import BrokerProcess

RETENTION_BYTES = 64 << 30
TRIGGERS = ((1_000_000, 0.6), (200_000, 0.45))
"""Rows a trigger, and the least ratio of the stream to that of Parquet files."""
WRITTEN = 500_000
"""Rows that a batch writes."""


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

    def parquet(self, files: int) -> Path:
        """The same rows in files."""
        directory = self.directory / f"parquet-{files}"
        if not directory.exists():
            filling.as_parquet(self.read(), directory, files)
        return directory


def batches(ground: Ground) -> Iterator[Measured]:
    """Batches, each beside Spark's Parquet reader."""
    spark, rows, files = ground.spark, ground.rows, ground.parquet(2)
    data_dir = str(ground.broker.data_directory)
    all_columns = batch_rate(lambda: filling.parquet(spark, files), rows)
    one_column = batch_rate(lambda: filling.parquet(spark, files).select("offset"), rows)

    def beside(title: str, ours: float, theirs: float, at_least: float) -> Measured:
        return Measured(title, "rows/s", ours, "Parquet", theirs, at_least)

    ours = batch_rate(ground.read, rows)
    yield beside("batch, all columns, HTTP", ours, all_columns, 0.6)
    ours = batch_rate(lambda: ground.read(dataDir=data_dir), rows)
    yield beside("batch, all columns, dataDir", ours, all_columns, 0.8)
    ours = batch_rate(lambda: ground.read(columns="offset"), rows)
    yield beside("batch, one column of ten", ours, one_column, 0.5)


def push_down(ground: Ground) -> Iterator[Measured]:
    """A filter on the topic beside the option that says the same."""
    topic, count = filling.ONE_READER, ground.rows // filling.READERS
    chosen = batch_rate(lambda: ground.read(subscribe=topic), count)
    where = batch_rate(lambda: ground.read(pushdown="true").where(f"topic = '{topic}'"), count)
    yield Measured("WHERE topic = ...", "rows/s", where, "subscribe", chosen, 0.8)


def streams(ground: Ground) -> Iterator[Measured]:
    """Streams to nowhere, beside Spark's stream of Parquet files."""
    for trigger, at_least in TRIGGERS:
        files = ground.parquet(max(ground.rows // trigger, 1))
        schema = filling.parquet(ground.spark, files).schema

        def theirs(
            checkpoint: Path, files: Path = files, schema: object = schema
        ) -> StreamingQuery:
            reader = ground.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return to_noop(reader.parquet(str(files)), checkpoint)

        def ours(checkpoint: Path, trigger: int = trigger) -> StreamingQuery:
            return to_noop(ground.stream(maxOffsetsPerTrigger=str(trigger)), checkpoint)

        title = f"stream to noop, {trigger:,} rows a trigger"
        yield Measured(
            title,
            "rows/s",
            stream_rate(ours, ground.directory / "checkpoint"),
            "Parquet files",
            stream_rate(theirs, ground.directory / "checkpoint"),
            at_least,
        )


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
        name = f"tables-{trigger}"

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

        yield Measured(
            f"stream to the bronze table, {trigger:,} rows a trigger",
            "rows/s",
            stream_rate(ours, ground.directory / name),
            "Spark's Parquet sink",
            stream_rate(theirs, ground.directory / name),
            0.85,
        )
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
    command = [str(GENERATOR), "pair", "--qos", "1", "--payload", "190"]
    command += ["--port", str(ground.broker.port), "--seconds", "3", "--warm-up", "1"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    raw = json.loads(answer.stdout)
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


def resident_mib(process: int) -> float:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


LINES: dict[str, Callable[[Ground], Iterator[Measured]]] = {
    "batches": batches,
    "push-down": push_down,
    "streams": streams,
    "floor": floor,
    "tables": tables,
    "memory": memory,
    "writer": writer,
}


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=LINES, action="append", help="these lines, kept nowhere")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    work = machine.ROOT / "target"
    work.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-pipeline-", dir=work))
    try:
        lines = _measure(directory, options.rows, options.only or list(LINES))
    finally:
        shutil.rmtree(directory)
    result = Result(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        commit=machine.commit(),
        machine=machine.describe(),
        rows=options.rows,
        load_average=load,
        lines=lines,
    )
    print(result.text())
    if not options.only:
        print(f"Wrote {result.write().relative_to(machine.ROOT)}")
    return 0


def _measure(directory: Path, rows: int, chosen: list[str]) -> list[Measured]:
    broker = BrokerProcess(directory, http_port=0, retention_bytes=RETENTION_BYTES)
    (broker.data_directory).mkdir()
    _say(f"{rows:,} tag reads are written")
    filling.fill(broker.data_directory, rows)
    broker.start()
    spark = local_session("holdfast bench")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        ground = Ground(spark, directory, broker, broker.http_address, rows)
        measured = []
        for name in chosen:
            for line in LINES[name](ground):
                _say(line.row())
                measured.append(line)
        return measured
    finally:
        spark.stop()
        broker.stop()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
