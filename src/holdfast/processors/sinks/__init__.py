"""The databases that rows go to, by their addresses."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.core.errors import ConfigurationError
from holdfast.processors.sink import Sink

SQLITE: Final = "sqlite:///"
POSTGRESQL: Final = ("postgresql://", "postgres://")


def open_sink(url: str) -> Sink:
    """The sink at an address: `sqlite:///file` (relative), `sqlite:////file` (absolute), or
    `postgresql://user@host/database`. Nothing is connected yet. Raises `ConfigurationError`, which
    names no password."""
    if url.startswith(SQLITE):
        from holdfast.processors.sinks.sqlite import SqliteSink

        return SqliteSink(sqlite_file(url))
    if url.startswith(POSTGRESQL):
        if find_spec("psycopg") is None:
            raise ConfigurationError(
                "rows go to PostgreSQL by psycopg, which `pip install holdfast[postgresql]` brings"
            )
        from holdfast.processors.sinks.postgresql import PostgresqlSink

        return PostgresqlSink(url)
    # What is no address may be a password.
    raise ConfigurationError("a sink is sqlite:///FILE or postgresql://USER@HOST/DATABASE")


def sqlite_file(url: str) -> Path:
    """The file of an address of SQLite. Raises `ConfigurationError`."""
    name = url.removeprefix(SQLITE)
    if not name or name.endswith("/") or ":memory:" in name:
        raise ConfigurationError(
            "a sink of SQLite names a file: rows have to outlive their process"
        )
    if "?" in name or "\0" in name:
        raise ConfigurationError("the address of a sink of SQLite is a file, without options")
    return Path(name)
