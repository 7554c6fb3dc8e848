"""`python -m bench.pipeline`: fill a log, measure line by line, write the figures."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.macro import machine
from bench.pipeline import filling
from bench.pipeline.result import Measured, Result
from bench.pipeline.spark_lines import batch_rate, floor_ms, stream_rate, to_noop
from holdfast.pipeline.session import local_session
from tests.process import HOST, BrokerProcess, free_port

RETENTION_BYTES = 64 << 30
TRIGGERS = ((1_000_000, 0.6), (200_000, 0.45))
"""Rows a trigger, and the least ratio of the stream to that of Parquet files."""
ROWS_A_SECOND = 100
"""Of the floor: a micro-batch has some ten rows."""


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


LINES: dict[str, Callable[[Ground], Iterator[Measured]]] = {
    "batches": batches,
    "push-down": push_down,
    "streams": streams,
    "floor": floor,
}


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
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
    http_port = free_port()
    broker = BrokerProcess(directory, http_port=http_port, retention_bytes=RETENTION_BYTES)
    (broker.data_directory).mkdir()
    _say(f"{rows:,} tag reads are written")
    filling.fill(broker.data_directory, rows)
    broker.start()
    spark = local_session("holdfast bench")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        ground = Ground(spark, directory, broker, f"{HOST}:{http_port}", rows)
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
