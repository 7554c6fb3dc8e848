"""The databases that rows go to, by their addresses."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.core.errors import ConfigurationError
from holdfast.processors.sink import Sink

SQLITE: Final = "sqlite:///"
POSTGRESQL: Final = ("postgresql://", "postgres://")
OWN: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_sink(url: str) -> Sink:
    """The sink at an address: `sqlite:///file` (relative), `sqlite:////file` (absolute),
    `postgresql://user@host/database`, or `module:Class` for one's own. Nothing is connected yet.
    Raises `ConfigurationError`, which names no password."""
    if OWN.fullmatch(url):
        return _own_sink(url)
    if url.startswith(SQLITE):
        from holdfast.processors.sinks.sqlite import SqliteSink

        return SqliteSink(sqlite_file(url))
    needs_psycopg(url)
    from holdfast.processors.sinks.postgresql import PostgresqlSink

    return PostgresqlSink(url)


def _own_sink(name: str) -> Sink:
    module, _, class_name = name.partition(":")
    try:
        found = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"there is no sink {name}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Sink)):
        raise ConfigurationError(f"{name} is not a class of holdfast.processors.sink.Sink")
    try:
        return found()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{name} cannot be made: {what}") from error


def needs_psycopg(url: str) -> None:
    """Raises `ConfigurationError` where `url` is no address of PostgreSQL, or its driver is not
    installed."""
    if not url.startswith(POSTGRESQL):
        # What is no address may be a password.
        raise ConfigurationError(
            "the address of a sink is sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    if find_spec("psycopg") is None:
        raise ConfigurationError(
            "PostgreSQL needs psycopg, which `pip install holdfast[postgresql]` brings"
        )


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
