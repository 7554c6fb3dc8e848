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
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.core.errors import OperatingError
from holdfast.pipeline.jobs.job import Job, NoRows
from holdfast.pipeline.jobs.own import blamed, blamed_in_spark
from holdfast.pipeline.load.files import WrittenFiles, no_files, write_files
from holdfast.pipeline.load.table import Portion, Shape, StoredTable, no_rows
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
    portion: Portion
    held: list[DataFrame] = field(default_factory=list)

    @cached_property
    def fresh(self) -> DataFrame:
        """The rows of the step."""
        source = self.warehouse.table(self.job.reads)
        return source.of_portion(self.spark, source.columns(), self.portion)

    @cached_property
    def taken(self) -> int:
        """How many these are."""
        rows = self.portion.rows()
        return self.fresh.count() if rows is None else rows

    def earliest(self, column: str) -> datetime | None:
        """A time that none of them is before."""
        return self.portion.earliest(column)

    def rows(self, table: str, **at_least: object) -> DataFrame:
        """The rows of a table; of the job's own, those before the step."""
        stored = self.warehouse.table(table)
        shape = self.job.makes.get(table)
        if shape is None:
            end = self.portion.upto
            columns = stored.columns()
        else:
            end = self.portion.after
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
    past = _Past(warehouse, spark, job, source.portion(after, upto))
    try:
        made = _made(job, past)
        with blamed_in_spark(job):
            out = _load(warehouse, job, made, upto, past.taken, upserted)
    finally:
        past.release()
    return Step(job.name, after, upto, past.taken, out)


def _made(job: Job, past: _Past) -> Mapping[str, DataFrame | NoRows]:
    """What a job makes of the rows of a step, for each of its tables."""
    fresh = past.fresh
    with blamed(job):
        made: Any = job.transform(fresh, past)
    frames: Mapping[str, Any] = made if isinstance(made, Mapping) else {}
    if set(frames) != set(job.makes):
        what = ", ".join(map(str, frames)) or f"{type(made).__name__} in place of its tables"
        raise AccountingError(
            f"job {job.name} says that it makes {', '.join(job.makes)}, and made {what}"
        )
    for name, frame in frames.items():
        if not isinstance(frame, DataFrame | NoRows):
            raise AccountingError(
                f"job {job.name} made {type(frame).__name__} in place of a frame for the table"
                f" {name}"
            )
    return frames


def _load(
    warehouse: Warehouse,
    job: Job,
    made: Mapping[str, DataFrame | NoRows],
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
            changed[name] = _arrow(frame, shape)
            counts[name] = changed[name].num_rows
        else:
            files = (
                no_files(table.path)
                if isinstance(frame, NoRows)
                else write_files(frame, table.path, shape.partition)
            )
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


def _arrow(frame: DataFrame | NoRows, shape: Shape) -> pa.Table:
    if isinstance(frame, NoRows):
        return to_arrow_schema(shape.columns, timezone="UTC").empty_table()
    return frame.toArrow()


@contextmanager
def made_again(
    spark: SparkSession, warehouse: Warehouse, job: Job, after: int, upto: int
) -> Iterator[Mapping[str, DataFrame]]:
    """What a job makes of a range of its input, whatever its tables have; writes nothing."""
    source = warehouse.table(job.reads)
    past = _Past(warehouse, spark, job, source.portion(after, upto))
    try:
        made = _made(job, past)
        with blamed_in_spark(job):
            yield {
                name: no_rows(spark, job.makes[name].columns) if isinstance(rows, NoRows) else rows
                for name, rows in made.items()
            }
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
