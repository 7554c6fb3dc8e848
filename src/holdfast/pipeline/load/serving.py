"""A copy of the answers in SQLite, for whoever asks one row at a time.

Owns: the copy, and how far it has come with each table.

Invariants:
1. Rows and version are one transaction. A copy that is behind its table is made anew.
2. Every value that a table can hold has a cell: what SQLite lacks is text.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import DataType

from holdfast.core.errors import OperatingError
from holdfast.pipeline.json_values import in_json
from holdfast.pipeline.load.table import NOTHING, Shape, StoredTable

BUSY_S = 30
"""As long as a reader's transaction may keep a writer waiting."""


class ServingError(OperatingError):
    """The copy cannot be written."""

    retriable = True


class ServingCopy:
    """One file with a table for each answer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def version(self, table: str) -> int:
        """How far the copy of the table is, or `NOTHING`."""
        with self._transaction() as database:
            found = database.execute(
                "SELECT version FROM holdfast_versions WHERE name = ?", (table,)
            ).fetchone()
        return NOTHING if found is None else int(found[0])

    def upsert(self, table: str, rows: pa.Table, shape: Shape, version: int) -> None:
        """Takes over what a step has changed."""
        with self._transaction() as database:
            _make(database, table, shape)
            _apply(database, table, rows, shape)
            _note(database, table, version)

    def forget(self, tables: Iterable[str]) -> None:
        """These are about to be made anew, and so shall be what is copied of them."""
        with self._transaction() as database:
            names = [(table,) for table in tables]
            database.executemany("DELETE FROM holdfast_versions WHERE name = ?", names)

    def follow(self, table: StoredTable, shape: Shape) -> bool:
        """Makes the copy anew if it is not as far as its table; true if it was not."""
        version = table.version()
        if version == NOTHING or self.version(table.name) == version:
            return False
        dataset = DeltaTable(str(table.path)).to_pyarrow_dataset()
        with self._transaction() as database:
            database.execute(f"DROP TABLE IF EXISTS {_quoted(table.name)}")
            _make(database, table.name, shape)
            for batch in dataset.to_batches():
                _apply(database, table.name, pa.Table.from_batches([batch]), shape)
            _note(database, table.name, version)
        return True

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block or nothing of it. Raises `ServingError`."""
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_S)) as database, database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS holdfast_versions"
                    " (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
                )
                yield database
        except sqlite3.Error as problem:
            raise ServingError(
                f"the copy of the answers in {self.path} cannot be written: {problem}"
            ) from problem


def _make(database: sqlite3.Connection, table: str, shape: Shape) -> None:
    columns = ", ".join(_quoted(name) for name in shape.columns.names)
    key = ", ".join(_quoted(name) for name in shape.key)
    database.execute(
        f"CREATE TABLE IF NOT EXISTS {_quoted(table)} ({columns}, PRIMARY KEY ({key}))"
    )


def _apply(database: sqlite3.Connection, table: str, rows: pa.Table, shape: Shape) -> None:
    names = shape.columns.names
    found = rows.to_pylist()
    kept = [row for row in found if not row.get("gone")]
    # A null in a key is another one to SQLite's own replacing.
    same = " AND ".join(f"{_quoted(name)} IS ?" for name in shape.key)
    keys = _cells(found, shape.key, shape)
    database.executemany(f"DELETE FROM {_quoted(table)} WHERE {same}", keys)  # noqa: S608 - names of our own tables, quoted
    places = ", ".join("?" for _ in names)
    columns = ", ".join(_quoted(name) for name in names)
    database.executemany(
        f"INSERT OR REPLACE INTO {_quoted(table)} ({columns}) VALUES ({places})",  # noqa: S608 - as above
        _cells(kept, names, shape),
    )


def _note(database: sqlite3.Connection, table: str, version: int) -> None:
    database.execute("INSERT OR REPLACE INTO holdfast_versions VALUES (?, ?)", (table, version))


def _cells(
    rows: Iterable[dict[str, Any]], names: Sequence[str], shape: Shape
) -> list[tuple[Any, ...]]:
    kinds = [(name, shape.columns[name].dataType) for name in names]
    return [tuple(_cell(row[name], kind) for name, kind in kinds) for row in rows]


def _cell(value: Any, kind: DataType) -> Any:
    """A value as SQLite has it: a time or a decimal is text, and what has parts is JSON."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, date):
        return value.isoformat()
    told = in_json(value, kind)
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
