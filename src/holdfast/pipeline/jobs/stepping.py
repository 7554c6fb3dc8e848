"""Bring the tables of a job up to its input, step by step.

Owns: the range of a step, the count of its rows, and the order of its commits.
Never: asks what a job does.

What is true after a crash between any two commits: each table has its own version. The next run
begins at the lowest, ends the step at the next version that one of them has, and skips those that
have it already: the same rows are made again, from the same input, and each is committed once.

Invariants:
1. Nothing of a step is committed unless its rows in are its rows out, where the job accounts.
2. All tables of a job have the same version when a step has ended.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.core.errors import OperatingError
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.jobs.own import blamed, blamed_in_spark
from holdfast.pipeline.load.files import WrittenFiles, write_files
from holdfast.pipeline.load.table import StoredTable
from holdfast.pipeline.load.warehouse import Warehouse

log = logging.getLogger(__name__)

STEP_ROWS = 500_000
"""Rows of the input in a step: as many as a micro-batch has by default."""


class AccountingError(OperatingError):
    """A job has lost or made rows; nothing of the step was committed."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    job: str
    after: int
    upto: int
    rows_in: int
    rows_out: Mapping[str, int]


Upserted = Callable[[str, Job, int, object], None]


@dataclass
class _Past:
    """What tables had when the step began."""

    warehouse: Warehouse
    spark: SparkSession
    job: Job
    after: int
    upto: int
    held: list[DataFrame] = field(default_factory=list)

    def rows(self, table: str, **at_least: object) -> DataFrame:
        """The rows of a table; of the job's own, those before the step."""
        stored = self.warehouse.table(table)
        shape = self.job.makes.get(table)
        if shape is None:
            end = self.upto
            columns = stored.columns()
        else:
            end = self.after
            columns = shape.columns
        frame = stored.frame(self.spark, columns, above=at_least)
        return frame.where(f.col("offset") <= end) if "offset" in columns.names else frame

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same rows, held until `release`."""
        self.held.append(frame.persist())
        return self.held[-1]

    def release(self) -> None:
        """Lets go of what the step held."""
        for frame in self.held:
            frame.unpersist()


def step(
    spark: SparkSession,
    warehouse: Warehouse,
    job: Job,
    *,
    rows: int = STEP_ROWS,
    upserted: Upserted | None = None,
) -> Step | None:
    """Does one step; none if the tables have all of their input."""
    source = warehouse.table(job.reads)
    versions = sorted({warehouse.table(name).version() for name in job.makes})
    after, known = versions[0], source.version()
    if known <= after:
        return None
    upto = versions[1] if len(versions) > 1 else source.step_end(after, rows)
    past = _Past(warehouse, spark, job, after, upto)
    try:
        fresh = source.between(spark, source.columns(), after, upto)
        rows_in = fresh.count()
        made = _made(job, fresh, past)
        with blamed_in_spark(job):
            out = _load(warehouse, job, made, upto, rows_in, upserted)
    finally:
        past.release()
    return Step(job.name, after, upto, rows_in, out)


def _made(job: Job, fresh: DataFrame, past: _Past) -> Mapping[str, DataFrame]:
    """What a job makes of some rows: a frame for each of its tables."""
    with blamed(job):
        made: Any = job.transform(fresh, past)
    frames: Mapping[str, Any] = made if isinstance(made, Mapping) else {}
    if set(frames) != set(job.makes):
        what = ", ".join(map(str, frames)) or f"{type(made).__name__} in place of its tables"
        raise AccountingError(
            f"job {job.name} says that it makes {', '.join(job.makes)}, and made {what}"
        )
    for name, frame in frames.items():
        if not isinstance(frame, DataFrame):
            raise AccountingError(
                f"job {job.name} made {type(frame).__name__} in place of a frame for the table"
                f" {name}"
            )
    return frames


def _load(
    warehouse: Warehouse,
    job: Job,
    made: Mapping[str, DataFrame],
    upto: int,
    rows_in: int,
    upserted: Upserted | None,
) -> dict[str, int]:
    """Writes all tables of a step and commits them; returns their rows."""
    written: list[tuple[StoredTable, str, WrittenFiles]] = []
    changed: dict[str, pa.Table] = {}
    counts: dict[str, int] = {}
    for name, frame in made.items():
        shape, table = job.makes[name], warehouse.table(name)
        if shape.key:
            changed[name] = frame.toArrow()
            counts[name] = changed[name].num_rows
        else:
            files = write_files(frame, table.path, shape.partition)
            counts[name] = files.rows
            written.append((table, name, files))
    if job.accounts and sum(counts.values()) != rows_in:
        for _, _, files in written:
            files.discard()
        parts = " + ".join(f"{count} {name}" for name, count in counts.items())
        raise AccountingError(
            f"job {job.name} took {rows_in} rows and made {sum(counts.values())} ({parts}); nothing"
            " of this step was committed"
        )
    for table, name, files in written:
        table.commit(files, job.makes[name], upto)
    for name, rows in changed.items():
        is_new = warehouse.table(name).upsert(rows, job.makes[name], upto)
        if is_new and upserted is not None:
            upserted(name, job, upto, rows)
    return counts


@contextmanager
def made_again(
    spark: SparkSession, warehouse: Warehouse, job: Job, after: int, upto: int
) -> Iterator[Mapping[str, DataFrame]]:
    """What a job makes of a range of its input, whatever its tables have; writes nothing."""
    source = warehouse.table(job.reads)
    past = _Past(warehouse, spark, job, after, upto)
    try:
        fresh = source.between(spark, source.columns(), after, upto)
        with blamed_in_spark(job):
            yield _made(job, fresh, past)
    finally:
        past.release()


def catch_up(
    spark: SparkSession,
    warehouse: Warehouse,
    job: Job,
    *,
    rows: int = STEP_ROWS,
    upserted: Upserted | None = None,
) -> list[Step]:
    """Does steps until the tables have all of their input."""
    done = []
    while (each := step(spark, warehouse, job, rows=rows, upserted=upserted)) is not None:
        log.info("step %s", each)
        done.append(each)
    return done
