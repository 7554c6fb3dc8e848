"""The driver of a round: the bronze job as a stream that does not end, on executors of their own.

Run as `python -m tests.journey.driver`, so that it can be killed like any driver. With
`--fault release-first` it breaks the rule that a round is to find: the cursor is released before
the table has the rows, and the driver dies in between.
"""

import argparse
import os
import signal

from holdfast.pipeline.load.delta import LogTable
from pyspark.sql import DataFrame

from holdfast.client.http import HttpClient
from holdfast.pipeline.session import local_session
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.options import parse_options

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds does not earn back what better code costs."""
SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}
RELEASE_FIRST = "release-first"


def main() -> None:
    """Runs until it is killed, or the query fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.journey.driver", description=__doc__)
    for name in ("broker", "table", "checkpoint", "cursor"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--fault", choices=[RELEASE_FIRST])
    given = parser.parse_args()
    source = {
        "broker": given.broker,
        "subscribe": "zebra/fx/+/reads",
        "startingOffsets": "earliest",
        "cursor": given.cursor,
    }
    spark = local_session("from device to table", settings=SETTINGS)
    table = LogTable(given.table, open_log(parse_options(source)).extent().epoch)

    def append(batch: DataFrame, number: int) -> None:
        if given.fault == RELEASE_FIRST:
            release_first(given.broker, given.cursor, batch)
        table.append_batch(batch, number)

    rows = spark.readStream.format("holdfast").options(**source).load()
    query = (
        rows.writeStream.foreachBatch(append)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    query.awaitTermination()


def release_first(broker: str, cursor: str, batch: DataFrame) -> None:
    """The planted fault."""
    end = batch.agg({"offset": "max"}).head()
    if end is None or end[0] is None:
        return
    client = HttpClient.at(broker, None, None)
    holder = client.json("GET", f"/v1/cursors/{cursor}")["holder"]
    client.json("POST", f"/v1/cursors/{cursor}/release", {"holder": holder, "offset": end[0] + 1})
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
