"""The pipeline's side of the demo: every stored message into a table, then the tag reads among
them."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.pipeline.jobs.bronze import BronzePlan, start_available_now
from holdfast.pipeline.session import local_session
from holdfast.pipeline.transform.tag_reads import deduplicated, parsed, rejected

QUIET = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The demo's Java runs for seconds: a quick start is worth more to it than the best machine
code."""


@dataclass(frozen=True)
class Reads:
    """What the table says once messages are understood as tag reads."""

    parsed: int
    rejected: Counter[str]
    once: int


class Pipeline:
    """The bronze job and what it has made."""

    def __init__(self, broker: str, directory: Path) -> None:
        self._plan = BronzePlan(
            source={"broker": broker, "subscribe": "zebra/fx/+/reads"},
            table=str(directory / "table"),
            checkpoint=str(directory / "checkpoint"),
        )
        self._log_file = directory / "spark.log"
        self._spark: SparkSession | None = None

    def open(self) -> None:
        """Starts Spark; takes some seconds. What its Java writes goes to a file."""
        with _errors_to(self._log_file):
            self._spark = local_session("holdfast demo", settings=QUIET)
        self._spark.sparkContext.setLogLevel("ERROR")

    def run(self) -> int:
        """Takes what is there now; returns the rows that it read."""
        assert self._spark is not None
        query = start_available_now(self._spark, self._plan)
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def restart(self) -> None:
        """A new Spark, which knows only what is on disk."""
        self.close()
        self.open()

    def rows(self) -> pa.Table:
        """The table as it is, by another reader than Spark."""
        return DeltaTable(self._plan.table).to_pyarrow_table(columns=["offset", "value", "qos"])

    def reads(self) -> Reads:
        """The tag reads in the table."""
        assert self._spark is not None
        raw = self._spark.read.parquet(*DeltaTable(self._plan.table).file_uris())
        good = parsed(raw)
        rules = rejected(raw).groupBy("rule").count().collect()
        return Reads(
            parsed=good.count(),
            rejected=Counter({row["rule"]: row["count"] for row in rules}),
            once=deduplicated(good).count(),
        )

    def close(self) -> None:
        """Ends Spark."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Processes that are started inside write their errors there, for as long as they live."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
