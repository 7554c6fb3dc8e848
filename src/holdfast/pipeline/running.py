"""Run a pipeline: the query that fills bronze, and the jobs behind it, until told to end.

Owns: which jobs there are, the order in which they take their turns, and what is seen meanwhile.
Never: knows what a job computes.

What is true after a crash anywhere: each table has its own version, and the next run goes on from
there (`jobs.bronze`, `jobs.stepping`).
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast import system
from holdfast.core.errors import OperatingError
from holdfast.pipeline.configuration import Configuration
from holdfast.pipeline.cursor import Cursor, CursorError, released_after_commit
from holdfast.pipeline.dead_letters import DeadLetters, dead_letter_topic
from holdfast.pipeline.jobs import acknowledged
from holdfast.pipeline.jobs.acknowledged import ACKNOWLEDGED, AcknowledgedTable
from holdfast.pipeline.jobs.bronze import BRONZE, SHAPE, log_of, start_query
from holdfast.pipeline.jobs.gold import Answers, consumer_job, gold_jobs
from holdfast.pipeline.jobs.job import Job, in_order
from holdfast.pipeline.jobs.own import own_jobs
from holdfast.pipeline.jobs.silver import silver_job
from holdfast.pipeline.jobs.stepping import Step, step
from holdfast.pipeline.load.serving import ServingCopy
from holdfast.pipeline.load.table import Shape
from holdfast.pipeline.load.upkeep import StandingUpkeep
from holdfast.pipeline.load.warehouse import Origin, Warehouse
from holdfast.pipeline.metrics import lag_of
from holdfast.pipeline.payloads.catalog import read_catalog
from holdfast.pipeline.session import local_session
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.offsets import CheckpointError, DataLossError
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.spark_errors import in_one_line
from holdfast.reading.log import RecordsGoneError, UnreadableLogError

SOURCE_ERRORS = (
    *(UnreadableLogError, RecordsGoneError),
    *(OptionError, CheckpointError, CursorError, DataLossError),
)
IDLE_S = 0.2
"""How long a run with nothing to do waits for the query."""
REST_MAXIMUM_S = 5.0
CONFIGURED = "SPARK_CONF_DIR"
SAYS = Path(__file__).with_name("log4j2.properties")
"""What Spark writes to the terminal: nothing."""
ERRORS = "SQLQueryContextLogger"
"""Where PySpark tells each error of a query as well, with pages of Java's stack."""


class RunError(OperatingError):
    """The query that fills bronze has ended with an error."""

    retriable = True


@dataclass
class Progress:
    """What a run has done so far."""

    batches: int = 0
    rows: int = 0
    lag: int | None = None
    """Messages of the pipeline's topics behind the last micro-batch, or at least so many; none
    while the query has not said."""
    steps: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    compacting: tuple[str, int] | None = None
    """The table that is being compacted, and how many files it has."""

    def took(self, done: Step) -> None:
        """Adds a step."""
        self.steps[done.job] = self.steps.get(done.job, 0) + 1
        for name, rows in done.rows_out.items():
            self.rows_out[name] = self.rows_out.get(name, 0) + rows
            self.versions[name] = done.upto


class Pipeline:
    """One pipeline, as its configuration describes it."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.dead_letter_topic = dead_letter_topic(configuration)
        folder = configuration.folder / configuration.jobs.schemas
        self.schemas = read_catalog(folder if folder.is_dir() else None)
        entries = configuration.answers
        answers = Answers(
            entries.presence_gap_s,
            entries.liveness_gap_s,
            entries.environment_level,
            entries.window_s,
            entries.queued_rows_minimum,
        )
        self.queues = entries.queues
        """Those whose latency is told."""
        consumers = [consumer_job(answers)] if self.queues else []
        own = own_jobs(configuration)
        self.jobs = in_order(
            [silver_job(self.schemas), *gold_jobs(answers), *consumers, *own],
            frozenset(self.from_log()),
        )

    def from_log(self) -> dict[str, Shape]:
        """The tables that no job makes."""
        return {BRONZE: SHAPE} | ({ACKNOWLEDGED: acknowledged.SHAPE} if self.queues else {})

    def shapes(self) -> dict[str, Shape]:
        """Every table with its shape."""
        return self.from_log() | {
            name: shape for job in self.jobs for name, shape in job.makes.items()
        }

    def opened(self) -> Warehouse:
        """The tables, for the log as it is now."""
        source = self.configuration.source()
        extent = log_of(source).extent()
        return Warehouse.opened(
            self.configuration.directory, Origin(extent.epoch, self.configuration.selection)
        )

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Spark, as the configuration wants it."""
        run = self.configuration.run
        settings = {"spark.driver.memory": run.driver_memory}
        # Who configures Spark has said what is to be seen of it.
        if CONFIGURED not in system.environment():
            settings["spark.driver.extraJavaOptions"] = f'"-Dlog4j2.configurationFile={SAYS}"'
            PySparkLogger.getLogger(ERRORS).disabled = True
        with _interrupts_kept():
            spark = local_session("holdfast pipeline", cores=run.cores, settings=settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()

    def run(
        self,
        spark: SparkSession,
        *,
        once: bool,
        seen: Callable[[Progress], None] = lambda progress: None,
    ) -> Progress:
        """Takes what is there and goes on until interrupted; `once`: until all of it is in all
        tables."""
        warehouse, progress = self.opened(), Progress()
        serving = self.serving()
        letters = self._dead_letters(warehouse)
        followed = AcknowledgedTable(self.queues, self.configuration.source())
        with warehouse.writing(*self.shapes()), self._releasing(spark, warehouse):
            if serving is not None:
                self.follow(warehouse, serving)
            upkeep = self._upkeep(warehouse, progress, seen)
            upkeep.begin()
            query = start_query(
                spark,
                warehouse,
                self.configuration.source(),
                continued=lambda rows: _batch(progress, rows),
                once=once,
                interval_s=self.configuration.run.interval_s,
            )
            try:
                while True:
                    running, began_s = query.isActive, system.monotonic_s()
                    busy = followed.follow(spark, warehouse)
                    largest = self._turn(spark, warehouse, serving, progress)
                    busy |= largest is not None
                    if letters is not None:
                        letters.follow(spark)
                    if busy:
                        upkeep.look()
                    progress.versions[BRONZE] = warehouse.table(BRONZE).version()
                    progress.lag = lag_of(query.lastProgress)
                    seen(progress)
                    if not running and not busy:
                        break
                    worked_s = system.monotonic_s() - began_s
                    if not busy:
                        query.awaitTermination(IDLE_S)  # type: ignore[arg-type]
                    elif running and (largest or 0) < self.configuration.run.rows_per_batch:
                        query.awaitTermination(rest_s(worked_s))  # type: ignore[arg-type]
            finally:
                query.stop()
            _raise_its_error(query)
        return progress

    def _releasing(self, spark: SparkSession, warehouse: Warehouse) -> AbstractContextManager[None]:
        """Where a cursor keeps messages for bronze, they are released once they are in it."""
        options = parse_options(self.configuration.source())
        if options.cursor is None or options.broker is None:
            return nullcontext()
        cursor = Cursor(options.cursor, options.broker, options.user, options.password)
        return released_after_commit(spark, cursor, warehouse.checkpoint(BRONZE))

    def serving(self) -> ServingCopy | None:
        """The copy of the answers, if there shall be one."""
        name = self.configuration.tables.serving
        return ServingCopy(self.configuration.directory / name) if name else None

    def follow(self, warehouse: Warehouse, serving: ServingCopy) -> None:
        """Makes the copies anew that are not as far as their tables."""
        for name, shape in self.shapes().items():
            if shape.key:
                serving.follow(warehouse.table(name), shape)

    def _upkeep(
        self, warehouse: Warehouse, progress: Progress, seen: Callable[[Progress], None]
    ) -> StandingUpkeep:
        def compacting(table: str, files: int) -> None:
            progress.compacting = (table, files)
            seen(progress)
            progress.compacting = None

        keep_hours = self.configuration.tables.keep_hours
        return StandingUpkeep(warehouse, self.shapes(), keep_hours, compacting)

    def _dead_letters(self, warehouse: Warehouse) -> DeadLetters | None:
        if self.dead_letter_topic is None:
            return None
        return DeadLetters(self.dead_letter_topic, self.configuration.source(), warehouse)

    def _turn(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        serving: ServingCopy | None,
        progress: Progress,
    ) -> int | None:
        """A step of each job; returns the rows of the largest, `None` if there was nothing to
        do."""
        largest: int | None = None

        def upserted(name: str, job: Job, version: int, rows: object) -> None:
            if serving is not None:
                serving.upsert(name, rows, job.makes[name], version)

        for job in self.jobs:
            rows = self.configuration.run.rows_per_batch
            with told(f"job {job.name}: "):
                done = step(spark, warehouse, job, rows=rows, upserted=upserted)
            if done is not None:
                largest = max(largest or 0, done.rows_in)
                progress.took(done)
        return largest


def rest_s(worked_s: float) -> float:
    """How long a run rests after a turn of its jobs that has left nothing behind: as long as the
    turn took, so that half of the time is somebody else's, and no longer than `REST_MAXIMUM_S`. A
    step takes seconds of a machine however few rows it has."""
    return min(worked_s, REST_MAXIMUM_S)


def _batch(progress: Progress, rows: int) -> None:
    progress.batches += 1
    progress.rows += rows
    progress.rows_out[BRONZE] = progress.rows_out.get(BRONZE, 0) + rows


def _raise_its_error(query: StreamingQuery) -> None:
    problem = query.exception()
    if problem is not None:
        raise RunError(in_one_line(str(problem)))


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Ctrl+C waits until the block has ended, and does what it did before. Spark puts a handler of
    its own in place, which asks Py4J for something while an answer is under way; and whatever
    Spark starts meanwhile, its Python workers too, is ended by it alone."""
    before = signal.getsignal(signal.SIGINT)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def told(who: str = "") -> Iterator[None]:
    """Whatever the log, Spark or a table has against it becomes one sentence, in `RunError`, which
    begins with who was stopped."""
    try:
        yield
    except SOURCE_ERRORS as problem:
        raise RunError(f"{who}{problem}") from problem
    except (PySparkException, Py4JError, DeltaError) as problem:
        raise RunError(f"{who}{in_one_line(str(problem))}") from problem
