"""What one pipeline reads, keeps and answers, as a TOML file.

Owns: each entry with its default and reason; the file that `holdfast pipeline init` writes.
Never: reads a clock or talks to a broker.

Invariants:
1. Without any file the defaults suit a broker on the same machine.
2. What is misspelt raises `ConfigurationError`, which names the entry.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConfigurationError

FILE = "pipeline.toml"


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
    keep_hours: int = entry(168, "Files that no table names any more stay so long for readers.")


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
    environment_level: int = entry(1, "The level of a topic that names its environment, from 1.")
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

    def source(self) -> dict[str, str]:
        """The options of the data source."""
        found = {"subscribe": self.log.subscribe, **self.log.options}
        found["maxOffsetsPerTrigger"] = str(self.run.rows_per_batch)
        if self.log.data_dir:
            return found | {"dataDir": str(self.folder / self.log.data_dir)}
        found["broker"] = self.log.broker
        if self.log.user:
            path = self.folder / self.log.password_file
            try:
                found |= {"user": self.log.user, "password": path.read_text().rstrip("\n")}
            except OSError as problem:
                raise ConfigurationError(
                    f"log.password_file cannot be read: {problem}"
                ) from problem
        return found


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
    return Configuration(folder=path.parent, **parts)


def _checked(path: Path, table: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    known = {each.name: each for each in fields(TABLES[table])}
    for name, value in entries.items():
        if name not in known:
            raise ConfigurationError(
                f"{path}: [{table}] has no entry {name}; there are {', '.join(known)}"
            )
        default = _default(known[name])
        taken = tuple(value) if isinstance(default, tuple) else value
        if isinstance(default, float) and type(value) is int:
            taken = float(value)
        if type(taken) is not type(default):
            raise ConfigurationError(
                f"{path}: {table}.{name} must be such as {_written(default)}, not {value!r}"
            )
        if isinstance(taken, int | float) and taken <= 0:
            raise ConfigurationError(f"{path}: {table}.{name} must be greater than 0, not {value}")
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
