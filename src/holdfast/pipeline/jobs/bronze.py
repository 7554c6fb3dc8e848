"""Keep every record of some topics in a table, as it is, exactly once.

Owns: the first job of the pipeline. From here on messages are rows, and retention in the log no
longer matters.

What is true after a crash between any two steps: Spark repeats the micro-batch, the table keeps
what it has and takes what it lacks. Checkpoint and table may even be lost one without the other: a
lost checkpoint only costs reading.
"""

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.pipeline.load.delta import LogTable
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.options import parse_options


@dataclass(frozen=True, slots=True)
class BronzePlan:
    """What to read, and where to keep it."""

    source: dict[str, str]
    """Options of the data source; it starts at `earliest` unless they say otherwise."""
    table: str
    checkpoint: str


def start_available_now(spark: SparkSession, plan: BronzePlan) -> StreamingQuery:
    """Starts a query that takes what is there now and ends. `awaitTermination` waits for it."""
    source = {"startingOffsets": "earliest", **plan.source}
    extent = open_log(parse_options(source)).extent()
    table = LogTable(plan.table, extent.epoch)
    raw = spark.readStream.format("holdfast").options(**source).load()
    return (
        raw.writeStream.foreachBatch(table.append_batch)
        .option("checkpointLocation", plan.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
