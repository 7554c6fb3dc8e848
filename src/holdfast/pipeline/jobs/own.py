"""Jobs of one's own: which a pipeline's modules have, and what is said when their code fails.

Owns: the import of the modules, and the sentence with the job, the place and the exception.
Never: says anything of the jobs that ship; what they raise is our fault and stays as it is.

Invariant: what the code of a module raises leaves here as one sentence, with the exception itself
as its cause.
"""

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import holdfast
from holdfast.core.errors import ConfigurationError, OperatingError
from holdfast.pipeline.configuration import Configuration
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.load.table import columns_without_place
from holdfast.pipeline.spark_errors import ERROR, in_one_line, places_in

OURS = Path(holdfast.__file__).parent
INSTALLED = "site-packages"
"""A folder of other people's code, wherever it lies."""


class JobError(OperatingError):
    """The code of a job of one's own has failed."""

    retriable = False


def own_jobs(configuration: Configuration) -> list[Job]:
    """The jobs of the modules that the configuration names. Raises `ConfigurationError`."""
    found: list[Job] = []
    folder = configuration.folder.resolve()
    if configuration.jobs.modules and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    for name in configuration.jobs.modules:
        try:
            module = importlib.import_module(name)
        except Exception as problem:
            raise ConfigurationError(
                f"jobs.modules: {name} cannot be imported: {_said(problem, folder)}"
            ) from problem
        file = module.__file__ or name
        jobs = getattr(module, "JOBS", None)
        if not isinstance(jobs, list) or not all(isinstance(job, Job) for job in jobs):
            raise ConfigurationError(
                f"jobs.modules: {name} has no list JOBS of jobs, which {file} must have"
            )
        for job in jobs:
            _check_shapes(name, job)
            found.append(replace(job, file=file))
    return found


def _check_shapes(module: str, job: Job) -> None:
    for table, shape in job.makes.items():
        placeless = columns_without_place(shape.columns)
        if placeless:
            raise ConfigurationError(
                f"jobs.modules: {module}: job {job.name} would make the table {table} with"
                f" {', '.join(placeless)}, which a Delta table cannot hold; make it a number or"
                " text"
            )


@contextmanager
def blamed(job: Job) -> Iterator[None]:
    """Whatever the code of a job of one's own raises within becomes a `JobError`."""
    try:
        yield
    except OperatingError:
        raise
    except Exception as problem:
        if not job.file:
            raise
        said = _said(problem, Path(job.file).parent)
        raise JobError(f"job {job.name} of {job.file}: {said}") from problem


@contextmanager
def blamed_in_spark(job: Job) -> Iterator[None]:
    """The same of what Spark raises while it does what the job has planned. What others raise then
    is of a disk or a table."""
    try:
        yield
    except (PySparkException, Py4JError):
        with blamed(job):
            raise


def _said(problem: Exception, folder: Path) -> str:
    """An exception in one line, behind the last place of the folder's code that it came through."""
    text = str(problem)
    frames = traceback.extract_tb(problem.__traceback__)
    places = [(frame.filename, frame.lineno or 0) for frame in frames] + list(places_in(text))
    if isinstance(problem, SyntaxError):
        places, text = [(problem.filename or "", problem.lineno or 0)], problem.msg
    own = [f"{file}, line {line}: " for file, line in places if _is_in(folder, file)]
    said = in_one_line(text) if text.strip() else "it says no more"
    # Of what a worker raised, the line has its kind.
    kind = "" if ERROR.search(said) else f"{type(problem).__name__}: "
    return f"{own[-1] if own else ''}{kind}{said}"


def _is_in(folder: Path, file: str) -> bool:
    """True for a file of the folder that is not of a package installed there, nor ours."""
    path = Path(file)
    if not path.is_relative_to(folder) or path.is_relative_to(OURS):
        return False
    return INSTALLED not in path.relative_to(folder).parts
