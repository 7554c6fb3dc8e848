"""Rows in a file of SQLite: the sink that needs no server.

Owns: one connection to one file, and to one more for each schema that a table names, which lies
beside it (`reads.db` and `reads.bbu.db`, attached as `bbu`). Never: lets a transaction reach over
two files, since after a crash SQLite keeps each of them whole, but not both (its "Atomic Commit",
"with WAL"): the rows of a table, their messages' attempts and their versions are in one file.

Invariants:
1. What `commit` returned has been synced: write-ahead log, `synchronous = FULL`.
2. A file that somebody moved or deleted is not written to: its rows would go with it.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Final

from holdfast import system
from holdfast.processors.sink import (
    Committed,
    RowsRefusedError,
    Sink,
    SinkAwayError,
    SinkUnfitError,
)
from holdfast.processors.sinks.layout import (
    ATTEMPTS_KEPT_DAYS,
    ATTEMPTS_TABLE,
    OWN_VERSION,
    VERSIONS_TABLE,
    Layout,
    check_own_version,
    check_version,
    columns_to_add,
    lay_out,
)
from holdfast.processors.sinks.values import Columns, Conversion
from holdfast.processors.table import ColumnType, IdentifiedRow, Table

BUSY_TIMEOUT_S: Final = 5.0
"""How long a commit waits for another process that writes to the file."""

TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.TEXT: "TEXT",
    ColumnType.INTEGER: "INTEGER",
    ColumnType.REAL: "REAL",
    ColumnType.BOOLEAN: "INTEGER",
    ColumnType.BYTES: "BLOB",
    ColumnType.TIMESTAMP: "TEXT",
    ColumnType.JSON: "TEXT",
}

AWAY: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_INTERRUPT,
    }
)
REFUSED: Final = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_RANGE,
    }
)


def sqlite_time(moment: datetime) -> str:
    """A moment in UTC as SQLite has it: its functions read it, and texts sort as the moments do."""
    return moment.isoformat("T", "microseconds")[:-6] + "Z"


CONVERSIONS: Final[Mapping[ColumnType, Conversion]] = {
    ColumnType.BOOLEAN: int,
    ColumnType.TIMESTAMP: sqlite_time,
}


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A table that is there, and the statement that writes to it."""

    layout: Layout
    columns: Columns
    insert: str


class SqliteSink(Sink):
    """Tables in one file, and in one more beside it for each schema."""

    def __init__(self, file: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._file = file
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._tables: dict[str, _Prepared] = {}
        self._inodes: dict[Path, tuple[int, int] | None] = {}

    def open(self, table: Table) -> None:
        """The table is there, with all columns of its version."""
        self._prepared(table)

    def commit(self, table: Table, rows: Sequence[IdentifiedRow]) -> Committed:
        """Writes rows in one transaction."""
        prepared = self._prepared(table)
        if not rows:
            return Committed(0, 0)
        identities = [each.message_identity for each in rows]
        numbers = [each.row_number for each in rows]
        columns = (*prepared.columns.of(rows), identities, numbers, repeat(self._now()))
        with self._transaction(prepared.layout) as connection:
            inserted = connection.executemany(prepared.insert, zip(*columns, strict=False))
            attempts = _at(prepared.layout, ATTEMPTS_TABLE)
            if connection.execute(f"SELECT 1 FROM {attempts} LIMIT 1").fetchone() is not None:
                self._forget(connection, prepared.layout, identities)
        return Committed(inserted.rowcount, len(rows) - inserted.rowcount)

    def count_attempts(self, table: Table, identities: Sequence[str]) -> Mapping[str, int]:
        """Counts one more attempt for each message."""
        layout = self._prepared(table).layout
        attempts = _at(layout, ATTEMPTS_TABLE)
        now = self._now()
        with self._transaction(layout) as connection:
            connection.executemany(
                f"INSERT INTO {attempts} VALUES (?, ?, 1, ?) ON CONFLICT (table_name,"
                " message_identity) DO UPDATE SET attempts = attempts + 1,"
                " last_at_utc = excluded.last_at_utc",
                ((layout.name, identity, now) for identity in dict.fromkeys(identities)),
            )
            return {
                identity: connection.execute(
                    f"SELECT attempts FROM {attempts}"
                    " WHERE table_name = ? AND message_identity = ?",
                    (layout.name, identity),
                ).fetchone()[0]
                for identity in identities
            }

    def forget_attempts(self, table: Table, identities: Sequence[str]) -> None:
        """What was counted for these messages is gone."""
        layout = self._prepared(table).layout
        with self._transaction(layout) as connection:
            self._forget(connection, layout, identities)

    def close(self) -> None:
        """Nothing of it is open."""
        self._drop()

    # --- transactions ---------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, layout: Layout) -> Iterator[sqlite3.Connection]:
        """What is written within is durable when it is left, or not there at all."""
        connection = self._connection
        assert connection is not None, "it is open where a table is prepared"
        with self._answering():
            # Not immediate: that would take the write lock of every attached file. The first
            # statement within writes, so that the lock is asked for before anything was read.
            connection.execute("BEGIN")
            try:
                yield connection
                self._check_place(layout)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Whatever SQLite says becomes what a sink says."""
        try:
            yield
        except SinkAwayError:
            self._drop()
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in REFUSED:
                raise RowsRefusedError(str(error)) from error
            self._drop()
            if code in AWAY:
                raise SinkAwayError(f"{self._file}: {error}") from error
            raise SinkUnfitError(f"{self._file}: {error}") from error

    def _forget(
        self, connection: sqlite3.Connection, layout: Layout, identities: Sequence[str]
    ) -> None:
        connection.executemany(
            f"DELETE FROM {_at(layout, ATTEMPTS_TABLE)}"
            " WHERE table_name = ? AND message_identity = ?",
            ((layout.name, identity) for identity in dict.fromkeys(identities)),
        )

    def _check_place(self, layout: Layout) -> None:
        path = self._path(layout.schema)
        if _inode(path) != self._inodes[path]:
            raise SinkAwayError(f"{path} was moved or deleted while it was open")

    def _now(self) -> str:
        return sqlite_time(datetime.fromtimestamp(system.now_us() / 1e6, UTC))

    # --- connecting -----------------------------------------------------------------------------

    def _prepared(self, table: Table) -> _Prepared:
        found = self._tables.get(table.name)
        if found is None or found.layout.table != table:
            layout = lay_out(table)
            with self._answering():
                found = self._prepare(self._connected(), layout)
            self._tables[table.name] = found
        return found

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            directory = self._file.absolute().parent
            if not directory.is_dir():
                raise SinkUnfitError(f"there is no directory {directory} for a database")
            if not os.access(directory, os.W_OK | os.X_OK):
                raise SinkUnfitError(f"{directory} may not be written to")
            connection = sqlite3.connect(
                self._file,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection = connection
            self._set_up(connection, None)
        return self._connection

    def _set_up(self, connection: sqlite3.Connection, schema: str | None) -> None:
        """One file is written to durably, and known again."""
        path, name = self._path(schema), _quoted(schema or "main")
        if connection.execute(f"PRAGMA {name}.journal_mode").fetchone()[0] != "wal":
            connection.execute(f"PRAGMA {name}.journal_mode = WAL")
        connection.execute(f"PRAGMA {name}.synchronous = FULL")
        self._inodes[path] = _inode(path)

    def _path(self, schema: str | None) -> Path:
        return self._file if schema is None else schema_file(self._file, schema)

    def _drop(self) -> None:
        self._tables.clear()
        self._inodes.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- tables ---------------------------------------------------------------------------------

    def _prepare(self, connection: sqlite3.Connection, layout: Layout) -> _Prepared:
        path = self._path(layout.schema)
        if layout.schema is not None and path not in self._inodes:
            connection.execute(f"ATTACH ? AS {_quoted(layout.schema)}", (str(path),))
            self._set_up(connection, layout.schema)
        names = list(layout.columns)
        insert = (
            f"INSERT INTO {_at(layout, layout.name)} ({_listed(names)})"
            f" VALUES ({', '.join('?' * len(names))})"
            f" ON CONFLICT ({_listed(layout.key)}) DO NOTHING"
        )
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._migrate(connection, layout)
            # Compiling it finds a key that is not unique in the table.
            connection.execute(f"EXPLAIN {insert}", [None] * len(names))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return _Prepared(layout, Columns(layout, CONVERSIONS), insert)

    def _migrate(self, connection: sqlite3.Connection, layout: Layout) -> None:
        versions, attempts = _at(layout, VERSIONS_TABLE), _at(layout, ATTEMPTS_TABLE)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {versions}"
            " (table_name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )
        check_own_version(self._version(connection, versions, VERSIONS_TABLE) or OWN_VERSION)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {attempts} (table_name TEXT NOT NULL, message_identity"
            " TEXT NOT NULL, attempts INTEGER NOT NULL, last_at_utc TEXT NOT NULL,"
            " PRIMARY KEY (table_name, message_identity))"
        )
        kept_from = datetime.fromtimestamp(system.now_us() / 1e6, UTC) - timedelta(
            days=ATTEMPTS_KEPT_DAYS
        )
        connection.execute(
            f"DELETE FROM {attempts} WHERE last_at_utc < ?", (sqlite_time(kept_from),)
        )
        stored = self._version(connection, versions, layout.name)
        check_version(layout, stored or 0)
        self._shape(connection, layout, stored)
        connection.executemany(
            f"INSERT INTO {versions} VALUES (?, ?)"
            " ON CONFLICT (table_name) DO UPDATE SET version = excluded.version",
            [(VERSIONS_TABLE, OWN_VERSION), (layout.name, layout.table.version)],
        )

    def _version(self, connection: sqlite3.Connection, versions: str, name: str) -> int | None:
        found = connection.execute(f"SELECT version FROM {versions} WHERE table_name = ?", (name,))
        row = found.fetchone()
        return None if row is None else int(row[0])

    def _shape(self, connection: sqlite3.Connection, layout: Layout, stored: int | None) -> None:
        place = _at(layout, layout.name)
        present = {
            name: (type_.upper(), bool(required) and default is None)
            for name, type_, required, default in connection.execute(
                'SELECT name, type, "notnull", dflt_value FROM pragma_table_info(?, ?)',
                (layout.name, layout.schema or "main"),
            )
        }
        if not present:
            lines = [
                f"{_quoted(name)} {TYPES[type_]}{' NOT NULL' * (name in layout.required)}"
                for name, type_ in layout.columns.items()
            ]
            connection.execute(
                f"CREATE TABLE {place} ({', '.join(lines)}, UNIQUE ({_listed(layout.key)}))"
            )
            return
        fits = {
            name: type_ == TYPES[layout.columns[name]] if name in layout.columns else True
            for name, (type_, _) in present.items()
        }
        for name in columns_to_add(layout, stored, fits):
            connection.execute(
                f"ALTER TABLE {place} ADD COLUMN {_quoted(name)} {TYPES[layout.columns[name]]}"
            )
        for name, (_, demanded) in present.items():
            if demanded and name not in layout.required:
                raise SinkUnfitError(
                    f"column {name} of {layout.table.name} has to have something in each row,"
                    " and this program may write rows without"
                )


def schema_file(file: Path, schema: str) -> Path:
    """Where the tables of a schema lie: beside the file, by its name."""
    return file.with_name(f"{file.stem}.{schema}{file.suffix}")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _quoted(name: str) -> str:
    return f'"{name}"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _at(layout: Layout, name: str) -> str:
    return f"{_quoted(layout.schema or 'main')}.{_quoted(name)}"
