"""The pipeline's side of the demo: every stored message into a table, the tag reads among them, and
what they say."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.pipeline.configuration import AnswerEntries, Configuration, LogEntries
from holdfast.pipeline.report.data import report_data
from holdfast.pipeline.report.page import page
from holdfast.pipeline.running import Pipeline
from holdfast.pipeline.session import local_session

QUIET = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The demo's Java runs for seconds: a quick start is worth more to it than the best machine
code."""


@dataclass(frozen=True)
class Reads:
    """What the tables say of tag reads."""

    parsed: int
    rejected: Counter[str]
    once: int


class Tables:
    """The pipeline, and what it has made."""

    def __init__(self, broker: str, directory: Path) -> None:
        self.pipeline = Pipeline(
            Configuration(
                folder=directory,
                log=LogEntries(broker=broker, subscribe="zebra/fx/+/reads"),
                # The demo lasts half a minute: what is counted by the minute elsewhere, and takes a
                # minute to be missed, is quicker here.
                answers=AnswerEntries(window_s=2, liveness_gap_s=1, presence_gap_s=4),
            )
        )
        self._log_file = directory / "spark.log"
        self._spark: SparkSession | None = None

    def open(self) -> None:
        """Starts Spark; takes some seconds. What its Java writes goes to a file."""
        with _errors_to(self._log_file):
            self._spark = local_session("holdfast demo", settings=QUIET)
        self._spark.sparkContext.setLogLevel("OFF")

    def run(self) -> int:
        """Takes what is there now into all tables; returns the records that it read."""
        assert self._spark is not None
        return self.pipeline.run(self._spark, once=True).rows

    def restart(self) -> None:
        """A new Spark, which knows only what is on disk."""
        self.close()
        self.open()

    def rows(self) -> pa.Table:
        """The first table as it is, by another reader than Spark."""
        return self._table("bronze", "offset", "value", "qos")

    def reads(self) -> Reads:
        """The tag reads in the tables."""
        once = self._table("tag_reads", "offset").num_rows
        return Reads(
            parsed=once + self._table("duplicates", "offset").num_rows,
            rejected=Counter(self._table("rejected", "rule")["rule"].to_pylist()),
            once=once,
        )

    def report(self, path: Path) -> None:
        """Writes what the tables say, as a page."""
        path.write_text(page(report_data(self.pipeline, datetime.now(UTC))))

    def close(self) -> None:
        """Ends Spark."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def _table(self, name: str, *columns: str) -> pa.Table:
        path = str(self.pipeline.opened().table(name).path)
        return pa.table(DeltaTable(path).to_pyarrow_table(columns=list(columns)))


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
