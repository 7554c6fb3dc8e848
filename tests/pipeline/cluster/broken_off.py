"""An application for spark-submit: copies messages from one topic to another as a stream, on two
executors, of which one is killed in the middle of its first task.

Each copy has as its key the process of the executor that made it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

ADDRESS, SOURCE, TARGET, DIRECTORY = sys.argv[1:]
KILLED = f"{DIRECTORY}/killed"
COLUMNS = "topic string, value binary, key string"


def executor() -> int:
    """The JVM below which this Python worker runs: the parent of the daemon that forks workers."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    process = int(status.rpartition(")")[2].split()[1])
    command = Path(f"/proc/{process}/cmdline").read_text()
    assert "CoarseGrainedExecutorBackend" in command, command
    return process


def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is read, on its way to the other topic."""
    process = executor()
    task = TaskContext.get()
    assert task is not None
    for number, batch in enumerate(batches):
        if number == 1 and task.partitionId() == 0 and not Path(KILLED).exists():
            Path(KILLED).write_text(str(process))
            os.kill(process, signal.SIGKILL)
        columns = {
            "topic": [TARGET] * batch.num_rows,
            "value": batch["value"],
            "key": [str(process)] * batch.num_rows,
        }
        yield pa.RecordBatch.from_pydict(columns)


spark = SparkSession.builder.appName("broken off").getOrCreate()
messages = (
    spark.readStream.format("holdfast")
    .option("broker", ADDRESS)
    .option("subscribe", SOURCE)
    .option("startingOffsets", "earliest")
    .option("minPartitions", 4)
    .load()
)
query = (
    messages.select("value")
    .mapInArrow(copied, COLUMNS)
    .writeStream.format("holdfast")
    .option("broker", ADDRESS)
    .option("checkpointLocation", f"{DIRECTORY}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
