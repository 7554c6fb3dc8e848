"""Do a part again: a range from the log, or tables from the table that they are made of.

Owns: what is replaced, in which order, and what is refused.

What is true after a crash in between: each table has its range whole, or all of its rows, old or
new, since either is one commit. The same command again does the rest.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.core.errors import OperatingError
from holdfast.pipeline.jobs.bronze import BRONZE, SHAPE, log_of, records_of, with_day
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.jobs.stepping import STEP_ROWS, catch_up, made_again
from holdfast.pipeline.load.files import write_files
from holdfast.pipeline.load.table import Shape, StoredTable
from holdfast.pipeline.load.warehouse import Warehouse

STAGED = ".staged"


class BackfillError(OperatingError):
    """The range cannot be read again, or is not in the tables yet."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """One table's range."""

    table: str
    rows: int


def replace_range(
    spark: SparkSession,
    warehouse: Warehouse,
    source: dict[str, str],
    jobs: Iterable[Job],
    begin: int,
    end: int,
) -> Iterator[Replaced]:
    """Reads offsets from `begin` to before `end` again, and puts them in the place of what bronze
    and silver have of them; each table in one commit."""
    bronze = warehouse.table(BRONZE)
    available = log_of(source).extent().begin
    if begin < available:
        raise BackfillError(
            f"the log begins at offset {available}, so that {begin} cannot be read again; silver"
            " and gold can be made again from bronze (--rebuild)"
        )
    if not begin < end <= bronze.version() + 1:
        raise BackfillError(
            f"bronze ends at offset {bronze.version()}: a range up to {end} is not in it yet, and"
            " `holdfast pipeline run` brings it"
        )
    fresh = with_day(records_of(spark, source, begin, end))
    yield _replaced(warehouse, bronze, fresh, SHAPE, begin, end)
    for job in jobs:
        if has_ranges(job):
            with made_again(spark, warehouse, job, begin - 1, end - 1) as made:
                for name, frame in made.items():
                    table = warehouse.table(name)
                    yield _replaced(warehouse, table, frame, job.makes[name], begin, end)


def has_ranges(job: Job) -> bool:
    """True if its tables have a range of offsets that can be put in the place of another one. All
    else that was made of the old rows has to be made anew."""
    return job.reads == BRONZE and not any(shape.key for shape in job.makes.values())


def rebuild(
    spark: SparkSession,
    warehouse: Warehouse,
    job: Job,
    *,
    rows: int = STEP_ROWS,
) -> int:
    """Makes the tables of a job anew from its input, beside those that are there, and puts each in
    the place of the old one; returns the rows that it took."""
    with warehouse.beside(job.makes) as fresh:
        taken = sum(done.rows_in for done in catch_up(spark, fresh, job, rows=rows))
        for name, shape in job.makes.items():
            if fresh.table(name).exists():
                warehouse.table(name).take_over(fresh.table(name), shape)
    return taken


def _replaced(
    warehouse: Warehouse, table: StoredTable, frame: DataFrame, shape: Shape, begin: int, end: int
) -> Replaced:
    """Executors write the rows aside; they pass through here file by file into one commit."""
    staged = write_files(frame.select(*shape.columns.names), warehouse.directory / STAGED, None)
    schema = to_arrow_schema(shape.columns, timezone="UTC")
    paths = sorted(staged.folder.rglob("*.parquet"))

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for batch in pq.ParquetFile(path).iter_batches():
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    try:
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        table.replace(reader, begin, end, shape)
    finally:
        staged.discard()
    return Replaced(table.name, staged.rows)
