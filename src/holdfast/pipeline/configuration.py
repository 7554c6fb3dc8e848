"""What one pipeline reads, keeps and answers, as a TOML file.

Owns: each entry with its default and reason; the file that `holdfast pipeline init` writes.
Never: reads a clock or talks to a broker.

Invariants:
1. Without any file the defaults suit a broker on the same machine.
2. What is misspelt raises `ConfigurationError`, which names the entry.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import OPTIONS, parse_options

FILE = "pipeline.toml"
_NAMES = {option.name.lower(): option.name for option in OPTIONS}


def known_name(option: str) -> str:
    """An option's name as the source writes it, whose case does not matter."""
    return _NAMES.get(option.lower(), option)


def entry(default: Any, about: str) -> Any:
    """One entry of the file."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, kw_only=True)
class LogEntries:
    """Where messages come from."""

    broker: str = entry("127.0.0.1:8080", "host:port of the broker's HTTP listener, or https://…")
    data_dir: str = entry("", "Read this data directory instead of a running broker.")
    subscribe: str = entry(
        "zebra/fx/+/reads,zebra/fx/+/events", "Topics or MQTT filters, separated by commas."
    )
    user: str = entry("", "A user who may read the log, where the broker knows users.")
    password_file: str = entry("", "A file that holds the user's password.")
    options: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"about": 'More options of the data source, such as cursor = "name".'},
    )


@dataclass(frozen=True, kw_only=True)
class TableEntries:
    """Where tables go."""

    directory: str = entry("pipeline", "Tables and checkpoints, relative to this file.")
    serving: str = entry("serving.db", "A copy of the answers in SQLite, in there; empty for none.")
    keep_hours: int = entry(6, "Files that no table names any more stay so long for readers.")


@dataclass(frozen=True, kw_only=True)
class RunEntries:
    """How much at once."""

    cores: int = entry(2, "Tasks at a time.")
    rows_per_batch: int = entry(500_000, "Messages of a micro-batch, and rows of a step.")
    interval_s: float = entry(1.0, "From one micro-batch to the next, at least.")
    driver_memory: str = entry("1g", "Of Spark's Java process.")


@dataclass(frozen=True, kw_only=True)
class JobEntries:
    """Schemas and jobs of your own."""

    schemas: str = entry("schemas", "A folder of schema files, relative to this file.")
    modules: tuple[str, ...] = entry((), "Python modules beside this file, each with a list JOBS.")
    dead_letter_topic: str = entry("", "Rejected rows are published there too; empty for nowhere.")


@dataclass(frozen=True, kw_only=True)
class AnswerEntries:
    """What the answers are asked with."""

    presence_gap_s: float = entry(60.0, "A tag that was not read for so long has gone.")
    liveness_gap_s: float = entry(60.0, "A device that said nothing for so long was silent.")
    environment_level: int = entry(
        1, "The level of a topic that names its environment, from 1; a topic without it has none."
    )
    window_s: int = entry(60, "Rates and latencies are counted in windows of so many seconds.")
    queued_rows_minimum: int = entry(10, "Reads within a second that more make a batch.")
    queues: tuple[str, ...] = entry(
        (), "Queues whose latency from log to consumer is told: clients, groups, subscriptions."
    )


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One pipeline."""

    folder: Path
    """That of the file: what is relative is relative to it."""
    log: LogEntries = LogEntries()
    tables: TableEntries = TableEntries()
    run: RunEntries = RunEntries()
    jobs: JobEntries = JobEntries()
    answers: AnswerEntries = AnswerEntries()

    @property
    def directory(self) -> Path:
        """Where tables go."""
        return self.folder / self.tables.directory

    @property
    def selection(self) -> str:
        """Which topics are read, as tables are known by it."""
        options = self._without_user()
        return options.get("subscribe") or f"pattern {options['subscribePattern']}"

    @property
    def cursor(self) -> str:
        """The name of the cursor that keeps messages for the tables; empty without one."""
        return self._without_user().get("cursor", "")

    def source(self) -> dict[str, str]:
        """The options of the data source, each by the name that the source has for it."""
        found = self._without_user()
        if self.log.user and not self.log.data_dir:
            path = self.folder / self.log.password_file
            try:
                found |= {"user": self.log.user, "password": path.read_text().rstrip("\n")}
            except OSError as problem:
                raise ConfigurationError(
                    f"log.password_file cannot be read: {problem}"
                ) from problem
        return found

    def _without_user(self) -> dict[str, str]:
        found = {known_name(name): value for name, value in self.log.options.items()}
        if "subscribePattern" not in found or self.log.subscribe != LogEntries.subscribe:
            found = {"subscribe": self.log.subscribe} | found
        found["maxOffsetsPerTrigger"] = str(self.run.rows_per_batch)
        if self.log.data_dir:
            return found | {"dataDir": str(self.folder / self.log.data_dir)}
        return found | {"broker": self.log.broker}

    def check_options(self) -> None:
        """Raises `ConfigurationError` for options that the source does not have, or a pipeline."""
        for name, value in self.log.options.items():
            if not isinstance(value, str):
                raise ConfigurationError(
                    f'log.options.{name} must be text such as "{value}", not {value!r}'
                )
            instead = NOT_HERE.get(known_name(name))
            if instead is not None:
                raise ConfigurationError(f"log.options.{name} cannot be given here: {instead}")
        try:
            parse_options(self._without_user()).refuse_unless("stream", "a pipeline is a stream")
        except OptionError as problem:
            raise ConfigurationError(f"log.options: {problem}") from problem


NOT_HERE = {
    "columns": "a pipeline keeps every column",
    "includeHeaders": "a pipeline keeps the headers only as properties",
    "failOnSelectionChange": "tables are of one selection; another one needs another directory",
    "maxOffsetsPerTrigger": "run.rows_per_batch is what a micro-batch takes",
}
"""Options that a pipeline gives itself, and what to know instead."""
TABLES = {
    "log": LogEntries,
    "tables": TableEntries,
    "run": RunEntries,
    "jobs": JobEntries,
    "answers": AnswerEntries,
}


def read_configuration(path: Path) -> Configuration:
    """The pipeline that a file describes; that of the defaults if there is no such file."""
    if not path.exists():
        return Configuration(folder=path.parent)
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem}") from problem
    parts: dict[str, Any] = {}
    for table, entries in document.items():
        if table not in TABLES or not isinstance(entries, dict):
            raise ConfigurationError(
                f"{path}: there is no table [{table}]; there are {', '.join(TABLES)}"
            )
        parts[table] = TABLES[table](**dict(_checked(path, table, entries)))
    configuration = Configuration(folder=path.parent, **parts)
    try:
        configuration.check_options()
    except ConfigurationError as problem:
        raise ConfigurationError(f"{path}: {problem}") from problem
    return configuration


def _checked(path: Path, table: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    known = {each.name: each for each in fields(TABLES[table])}
    for name, value in entries.items():
        if name not in known:
            raise ConfigurationError(
                f"{path}: [{table}] has no entry {name}; there are {', '.join(known)}"
            )
        default = _default(known[name])
        taken = value
        if isinstance(default, tuple) and isinstance(value, list):
            taken = tuple(value) if all(isinstance(each, str) for each in value) else value
        if isinstance(default, float) and type(value) is int:
            taken = float(value)
        if type(taken) is not type(default):
            such = (
                _written(default or ("name",)) if isinstance(default, tuple) else _written(default)
            )
            raise ConfigurationError(
                f"{path}: {table}.{name} must be such as {such}, not {value!r}"
            )
        if isinstance(taken, int | float) and not 0 < taken < math.inf:
            raise ConfigurationError(
                f"{path}: {table}.{name} must be a number greater than 0, not {value}"
            )
        yield name, taken


def written_file() -> str:
    """The file with every entry, its default and its reason, all of them commented out."""
    lines = ["# A pipeline from the log to tables. Every entry has its default here."]
    for table, kind in TABLES.items():
        lines += ["", f"# {kind.__doc__}", f"[{table}]"]
        for each in fields(kind):
            lines += [f"# {each.metadata['about']}", f"# {each.name} = {_written(_default(each))}"]
    return "\n".join(lines) + "\n"


def _default(each: Any) -> Any:
    return each.default if each.default is not MISSING else each.default_factory()


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return "{}" if isinstance(value, dict) else str(value)
