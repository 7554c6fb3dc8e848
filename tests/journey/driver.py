"""The driver of a round: the bronze job as a stream that does not end, on executors of their own.

Run as `python -m tests.journey.driver`, so that it can be killed like any driver. With
`--fault release-first` it breaks the rule that a round is to find: the cursor is released before
the table has the rows, and the driver dies in between.
"""

import argparse
import os
import signal
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.client.http import HttpClient
from holdfast.core.errors import OperatingError
from holdfast.pipeline.configuration import Configuration, LogEntries
from holdfast.pipeline.cursor import Cursor, released_after_commit
from holdfast.pipeline.jobs import bronze
from holdfast.pipeline.running import Pipeline, told
from holdfast.pipeline.session import local_session
from tests.virtual_machine import QUICK, quick_start

SETTINGS = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.extraJavaOptions": QUICK}
RELEASE_FIRST = "release-first"
INTERVAL_S = 0.1
LAST_WORDS = "last-words.txt"
"""Why the driver ended, if it did so by itself."""


def main() -> None:
    """Runs until it is killed, or the query fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.journey.driver", description=__doc__)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--cursor", required=True)
    parser.add_argument("--fault", choices=[RELEASE_FIRST])
    given = parser.parse_args()
    os.environ.update(quick_start())
    try:
        with told():
            follow(given)
    except OperatingError as error:
        # Spark's own words go on behind these.
        (given.directory / LAST_WORDS).write_text(str(error))
        raise


def follow(given: argparse.Namespace) -> None:
    """The query."""
    entries = LogEntries(broker=given.broker, options={"cursor": given.cursor})
    configuration = Configuration(folder=given.directory, log=entries)
    cursor = Cursor(given.cursor, given.broker)
    if given.fault == RELEASE_FIRST:
        plant_release_first(cursor)
    spark = local_session("from device to table", settings=SETTINGS)
    warehouse = Pipeline(configuration).opened()
    checkpoint = warehouse.checkpoint(bronze.BRONZE)
    with (
        warehouse.writing(bronze.BRONZE),
        released_after_commit(spark, cursor, checkpoint),
    ):
        query = bronze.start_query(
            spark, warehouse, configuration.source(), once=False, interval_s=INTERVAL_S
        )
        query.awaitTermination()


def plant_release_first(cursor: Cursor) -> None:
    """From now on the first micro-batch with rows is released, and the driver dies then."""
    append = bronze.Appender.append

    def release_and_die(appender: bronze.Appender, batch: DataFrame) -> int:
        last = batch.agg(f.max("offset")).collect()[0][0]
        if last is None:
            return append(appender, batch)
        holder = HttpClient.at(cursor.broker).get(f"/v1/cursors/{cursor.name}")["holder"]
        cursor.release(holder, last + 1)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    bronze.Appender.append = release_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
