"""`holdfast pipeline`: from the log to tables with Spark, and what the tables say.

Owns: the terminal. Never: computes; `holdfast.pipeline` does. Nothing of it is imported before one
of these commands runs, since the others shall not wait for Spark.
"""

import argparse
import json
import logging
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from holdfast import system
from holdfast.cli.asking import print_table
from holdfast.cli.options import Subparsers, row_count
from holdfast.core.errors import ConfigurationError, OperatingError

if TYPE_CHECKING:
    from holdfast.pipeline.load.warehouse import Warehouse
    from holdfast.pipeline.running import Pipeline

FILE = "pipeline.toml"
Action = Callable[[argparse.Namespace], int]


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "pipeline",
        help="bring messages into tables with Spark, and report on them",
        description="Bring messages into tables with Spark, each once, and report on them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "init", initialise, "write a configuration with every entry and its default")
    run_parser = _action(actions, "run", run, "bring messages into the tables until interrupted")
    run_parser.add_argument("--once", action="store_true", help="end when the log is in them")
    backfill_parser = _action(actions, "backfill", backfill, "do a part of the tables again")
    add = backfill_parser.add_argument
    add("--from", dest="begin", metavar="OFFSET", type=int, help="read from here on again")
    add("--to", dest="end", metavar="OFFSET", type=int, help="up to before this offset")
    add(
        "--rebuild",
        metavar="JOBS",
        default="",
        help="make tables anew, such as silver,presence",
    )
    report_parser = _action(actions, "report", report, "write what the tables say as a page")
    report_parser.add_argument("--out", metavar="FILE", default="report.html", help="the page")
    report_parser.add_argument("--json", action="store_true", help="print the same as JSON instead")
    _action(actions, "explain", explain, "print each job from its source to its tables")
    status_parser = _action(actions, "status", status, "show how far each table is")
    status_parser.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "maintain", maintain, "compact tables and remove what nobody names any more")
    sql_parser = _action(actions, "sql", sql, "ask a broker by SQL what it has and who has it")
    add = sql_parser.add_argument
    add("query", metavar="QUERY", help="over the tables of docs/pipeline/sql.md; -: standard input")
    add("--broker", metavar="HOST:PORT", help="this one, not that of the configuration")
    add(
        "--limit",
        metavar="COUNT",
        type=row_count,
        default=1_000,
        help="rows at most (default: 1000)",
    )
    add("--json", action="store_true", help="print JSON")


def _action(actions: Subparsers, name: str, run_it: Action, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=Path(FILE),
        help=f"the pipeline's configuration (default: {FILE}; without it, all defaults)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say where an error comes from, by its traceback"
    )
    parser.set_defaults(run=_in_one_sentence(run_it))
    return parser


def _in_one_sentence(run_it: Action) -> Action:
    """The action, with whatever stops it in one sentence."""

    def run_and_tell(options: argparse.Namespace) -> int:
        _needs_pipeline()
        from holdfast.pipeline.running import told

        try:
            with _interrupted_quietly(), told():
                return run_it(options)
        except (OperatingError, OSError):
            if options.verbose:
                traceback.print_exc()
            raise

    return run_and_tell


@contextmanager
def _interrupted_quietly() -> Iterator[None]:
    """Ctrl+C ends what is done within by `KeyboardInterrupt`, and nothing is said of what it cut:
    Spark and Py4J would tell that at length, and as errors."""
    is_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        logging.disable()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


def initialise(options: argparse.Namespace) -> int:
    """Write the file; an existing one stays."""
    from holdfast.pipeline.configuration import written_file

    try:
        with options.config.open("x") as file:
            file.write(written_file())
    except FileExistsError:
        raise ConfigurationError(
            f"{options.config} is there already; it was left as it is"
        ) from None
    print(
        f"{options.config} has every entry with its default; `holdfast pipeline run` needs no edit"
    )
    return 0


def run(options: argparse.Namespace) -> int:
    """Run until interrupted, and show what happens."""
    pipeline = _pipeline(options)
    from rich.console import Console
    from rich.live import Live

    from holdfast.cli.pipeline_frame import frame, summary
    from holdfast.pipeline.running import Progress

    console, progress = Console(), Progress()
    live = Live(console=console, auto_refresh=False, transient=True)

    def seen(now: Progress) -> None:
        nonlocal progress
        progress = now
        if console.is_terminal:
            live.update(frame(pipeline, now), refresh=True)

    try:
        with pipeline.session() as spark, live if console.is_terminal else nullcontext():
            pipeline.run(spark, once=options.once, seen=seen)
    except KeyboardInterrupt:
        if progress.versions:
            print(summary(progress))
        raise
    print(summary(progress))
    return 0


def backfill(options: argparse.Namespace) -> int:
    """Replace a range, or make tables anew."""
    pipeline = _pipeline(options)
    from holdfast.pipeline.backfill import has_ranges, rebuild, replace_range

    by_name = {job.name: job for job in pipeline.jobs}
    named = [name for name in options.rebuild.split(",") if name]
    unknown = [name for name in named if name not in by_name]
    ranged = options.begin is not None and options.end is not None
    if unknown or (not named and not ranged):
        jobs = ", ".join(by_name)
        raise ConfigurationError(
            f"backfill takes --from and --to, or --rebuild with some of {jobs}"
        )
    # Tables are made anew from tables: the log is asked for a range alone.
    warehouse = pipeline.opened() if ranged else _recorded(pipeline)
    serving = pipeline.serving()
    with pipeline.session() as spark, warehouse.writing(*pipeline.shapes()):
        if ranged:
            source = pipeline.configuration.source()
            for done in replace_range(
                spark, warehouse, source, pipeline.jobs, options.begin, options.end
            ):
                print(f"{done.table}: {done.rows} rows from {options.begin} to {options.end - 1}")
            named += [job.name for job in pipeline.jobs if not has_ranges(job)]
        for name in dict.fromkeys(named):
            if serving is not None:
                serving.forget(by_name[name].makes)
            taken = rebuild(spark, warehouse, by_name[name])
            print(f"{name}: made anew from {taken} rows of {by_name[name].reads}")
        if serving is not None:
            pipeline.follow(warehouse, serving)
    return 0


def report(options: argparse.Namespace) -> int:
    """Write the page, or print its data."""
    pipeline = _pipeline(options)
    from holdfast.pipeline.report.data import report_data
    from holdfast.pipeline.report.page import page

    made_at = datetime.fromtimestamp(system.now_us() / 1e6, UTC)
    data = report_data(pipeline, made_at)
    if options.json:
        print(json.dumps(data, indent=2))
        return 0
    path = Path(options.out)
    path.write_text(page(data))
    print(f"{path}: {data['totals']['records']} messages, {len(data['tables'])} tables")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Print the plan."""
    from holdfast.cli.pipeline_frame import plan

    print(plan(_pipeline(options)))
    return 0


def status(options: argparse.Namespace) -> int:
    """Show how far each table is."""
    pipeline = _pipeline(options)
    from holdfast.cli.pipeline_frame import status_table
    from holdfast.pipeline.status import status_of

    found = status_of(pipeline)
    if found is None:
        raise PipelineAbsentError(
            f"there are no tables in {pipeline.configuration.directory} yet;"
            " `holdfast pipeline run` makes them"
        )
    if options.json:
        print(json.dumps(found.document(), indent=2))
        return 0
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 110).print(status_table(found))
    return 0


def maintain(options: argparse.Namespace) -> int:
    """Compact and clean each table, beside a running job too."""
    pipeline = _pipeline(options)
    from holdfast.pipeline.load.upkeep import maintain as keep_up

    warehouse = _recorded(pipeline)
    for name in warehouse.names():
        done = keep_up(warehouse.table(name), pipeline.configuration.tables.keep_hours)
        busy = "" if done.compacted else "; a job was quicker, the next time compacts"
        print(
            f"{name}: {done.files_before} files are {done.files_after},"
            f" {done.removed} that nobody named were removed{busy}"
        )
    return 0


class PipelineAbsentError(OperatingError):
    """There are no tables yet, or what the pipeline needs is not installed."""

    retriable = False


def _pipeline(options: argparse.Namespace) -> "Pipeline":
    from holdfast.pipeline.configuration import read_configuration
    from holdfast.pipeline.running import Pipeline

    if not options.config.exists() and options.config != Path(FILE):
        raise ConfigurationError(f"there is no configuration {options.config}")
    return Pipeline(read_configuration(options.config))


def _recorded(pipeline: "Pipeline") -> "Warehouse":
    """The tables as they are, whether or not their log can be read."""
    from holdfast.pipeline.load.warehouse import Warehouse

    directory = pipeline.configuration.directory
    origin = Warehouse.recorded(directory)
    if origin is None:
        raise PipelineAbsentError(
            f"there are no tables in {directory} yet; `holdfast pipeline run` makes them"
        )
    return Warehouse(directory, origin)


def sql(options: argparse.Namespace) -> int:
    """Run one query over the tables about a broker, all of one moment."""
    pipeline = _pipeline(options)
    from holdfast.pipeline.query import find

    query = sys.stdin.read() if options.query == "-" else options.query
    named = options.broker is not None
    source = {"broker": options.broker} if named else pipeline.configuration.source()
    with pipeline.session() as spark:
        found = find(spark, query, source, options.limit)
    if not options.json:
        print_table(found.rows, found.columns)
        return 0
    twice = sorted({name for name in found.columns if found.columns.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"a line of JSON has one value for each name, and the query has two columns"
            f" {', '.join(twice)}; name them apart with AS"
        )
    for row in found.rows:
        print(json.dumps(dict(zip(found.columns, row, strict=True))))
    return 0


def _needs_pipeline() -> None:
    try:
        import holdfast.pipeline.running  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as missing:
        raise PipelineAbsentError(
            f"the pipeline needs {missing.name}: install holdfast with its extra `pipeline`"
        ) from missing
