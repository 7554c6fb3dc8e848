"""A job: which table it reads, which tables it makes, and the function between them.

Owns: the form of a job, which a user's own code can make as well, and the order of jobs.
Never: starts anything; `running` does.

Invariants:
1. A transform is a function of DataFrames. It knows no path, clock or batch number, so that the
   same rows give the same tables in steps of any size.
2. A job that accounts for its rows gives each row that it takes to one of its tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pyspark.sql import DataFrame

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.load.table import Shape


class Past(Protocol):
    """What is already in tables, as far as the step may see it."""

    def rows(self, table: str, **at_least: object) -> DataFrame:
        """The rows of a table up to the step's end, or its beginning if the job makes the table;
        files wholly below the named values are left out."""

    @property
    def taken(self) -> int:
        """How many rows the step takes."""

    def earliest(self, column: str) -> datetime | None:
        """A time that is no later than any of the step's rows has in the column, without asking
        them; `None` where that is not known."""

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same rows, held until the step ends, since more than one table is made of them."""


class NoRows:
    """In place of a frame: the table gets no rows in this step, and nothing is asked of Spark."""


NO_ROWS: Final = NoRows()

Transform = Callable[[DataFrame, Past], Mapping[str, DataFrame | NoRows]]
"""New rows of the input and what was there before: rows for each table that the job makes."""


@dataclass(frozen=True, slots=True)
class Job:
    """One step of the pipeline."""

    name: str
    reads: str
    """The table whose new rows it takes."""
    makes: Mapping[str, Shape]
    transform: Transform
    accounts: bool = False
    """Whether rows in are rows out, over all of its tables."""
    about: str = ""
    file: str = ""
    """The module that it is from, where a configuration names that; `running` says it."""


def in_order(jobs: Sequence[Job], given: frozenset[str]) -> list[Job]:
    """Jobs so that each comes after those whose tables it reads. Raises `ConfigurationError`."""
    ordered: list[Job] = []
    there, waiting = set(given), list(jobs)
    made = [table for job in jobs for table in job.makes] + sorted(given)
    if len(set(made)) < len(made):
        twice = sorted({table for table in made if made.count(table) > 1})
        raise ConfigurationError(f"two jobs make the table {', '.join(twice)}")
    while waiting:
        ready = [job for job in waiting if job.reads in there]
        if not ready:
            names = ", ".join(f"{job.name} reads {job.reads}" for job in waiting)
            raise ConfigurationError(
                f"no job makes what these read, or they wait in a circle: {names}"
            )
        ordered += ready
        waiting = [job for job in waiting if job not in ready]
        there |= {table for job in ready for table in job.makes}
    return ordered
