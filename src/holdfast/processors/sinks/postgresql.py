"""Rows in a database of PostgreSQL.

Owns: one connection, and transactions that need nothing of it afterwards, so that a pool of
connections may stand between. Never: asks for more rights than a table that is there already needs.

A batch is copied straight into its table, which fails where a row is there already; then it goes by
a table of this transaction's own, and only what is new goes on from there. Most batches are new:
measured with 1 000 reads each and a synced disk, 125 000 rows a second the first way, 58 000 the
second, 40 000 by arrays. After a batch with repeats the next one goes the second way at once, since
what a broker sends again it sends in a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from holdfast.core.errors import ConfigurationError
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
    CREATED_AT_UTC,
    MESSAGE_IDENTITY,
    OWN_VERSION,
    ROW_NUMBER,
    VERSIONS_TABLE,
    Layout,
    check_own_version,
    check_version,
    columns_to_add,
    lay_out,
)
from holdfast.processors.sinks.values import Columns, Conversion
from holdfast.processors.table import ColumnType, IdentifiedRow, Table

CONNECTION: Final[Mapping[str, str | int]] = {
    "application_name": "holdfast",
    # A server that is gone without a word is noticed within seconds: the rows wait meanwhile.
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""What an address may say otherwise."""

BEGIN: Final = """
BEGIN;
SET LOCAL statement_timeout = '30s';
SET LOCAL lock_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '60s';
SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') = 'off';
"""
"""One exchange. A database without durable commits has them here; a stricter one stays so."""

TYPES: Final[Mapping[ColumnType, tuple[str, ...]]] = {
    ColumnType.TEXT: ("text", "varchar"),
    ColumnType.INTEGER: ("int8",),
    ColumnType.REAL: ("float8",),
    ColumnType.BOOLEAN: ("bool",),
    ColumnType.BYTES: ("bytea",),
    ColumnType.TIMESTAMP: ("timestamptz",),
    ColumnType.JSON: ("jsonb",),
}
"""What a column may be; the first one is what it is made."""


def _jsonb(text: str) -> Jsonb:
    return Jsonb(text, dumps=str)


CONVERSIONS: Final[Mapping[ColumnType, Conversion]] = {ColumnType.JSON: _jsonb}

AWAY: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Classes of SQLSTATE: connection, rollback, resources, state of an object, operator, system."""
AWAY_STATES: Final = frozenset({"25006", "25P03"})
"""A standby, which takes nothing until it is the primary; a transaction that stood still too long,
as in a process that was stopped."""
REFUSED: Final = frozenset({"21", "22", "23", "44", "54", "P0"})
"""Cardinality, data, constraints, check option, limits of the program, a trigger of the user's."""

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A table that is there, and the statements that write to it."""

    layout: Layout
    columns: Columns
    copy: str
    types: tuple[str, ...]
    staging: str
    copy_staged: str
    insert_staged: str
    attempted: str
    """Whether any message of any table was tried and is not forgotten."""


class PostgresqlSink(Sink):
    """Tables in one database."""

    def __init__(self, url: str) -> None:
        """Raises `ConfigurationError` for what is no address."""
        self._parameters = parameters(url)
        host, database = (self._parameters.get(each, "") for each in ("host", "dbname"))
        self._place = f"{host or 'this machine'}/{database}"
        self._connection: Connection | None = None
        self._tables: dict[str, _Prepared] = {}
        self._repeating: set[str] = set()
        """Tables whose last batch had rows that were there already."""

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
        cells = list(zip(*prepared.columns.of(rows), identities, numbers, strict=True))
        written = None
        if table.name not in self._repeating:
            written = self._copied(prepared, cells, identities)
        if written is None:
            written = self._copied_new(prepared, cells, identities)
        if written < len(rows):
            self._repeating.add(table.name)
        else:
            self._repeating.discard(table.name)
        return Committed(written, len(rows) - written)

    def count_attempts(self, table: Table, identities: Sequence[str]) -> Mapping[str, int]:
        """Counts one more attempt for each message."""
        layout = self._prepared(table).layout
        with self._transaction() as connection:
            counted = connection.execute(
                f"INSERT INTO {_at(layout, ATTEMPTS_TABLE)} AS counted"
                " SELECT %s, identity, 1, now() FROM unnest(%s::text[]) identity"
                " ON CONFLICT (table_name, message_identity) DO UPDATE"
                " SET attempts = counted.attempts + 1, last_at_utc = now()"
                " RETURNING message_identity, attempts",
                (layout.name, list(dict.fromkeys(identities))),
            )
            return {str(identity): int(str(attempts)) for identity, attempts in counted}

    def forget_attempts(self, table: Table, identities: Sequence[str]) -> None:
        """What was counted for these messages is gone."""
        layout = self._prepared(table).layout
        with self._transaction() as connection:
            _forget(connection, layout, identities)

    def close(self) -> None:
        """Nothing of it is open."""
        self._drop()

    # --- rows -----------------------------------------------------------------------------------

    def _copied(
        self, prepared: _Prepared, cells: Sequence[tuple[object, ...]], identities: Sequence[str]
    ) -> int | None:
        """How many rows were written, or None if one was there already."""
        try:
            with self._transaction() as connection:
                _copy(connection, prepared.copy, prepared.types, cells)
                _forget_if_any(connection, prepared, identities)
        except _RepeatError:
            return None
        return len(cells)

    def _copied_new(
        self, prepared: _Prepared, cells: Sequence[tuple[object, ...]], identities: Sequence[str]
    ) -> int:
        with self._transaction() as connection:
            connection.execute(prepared.staging)
            _copy(connection, prepared.copy_staged, prepared.types, cells)
            written = connection.execute(prepared.insert_staged).rowcount
            _forget_if_any(connection, prepared, identities)
        return written

    # --- transactions ---------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """What is written within is durable when it is left, or not there at all; where the
        connection ends in between, which of the two is not known."""
        with self._answering():
            connection = self._connected()
            connection.execute(BEGIN)
            try:
                yield connection
            except BaseException:
                if not connection.broken:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Whatever PostgreSQL says becomes what a sink says."""
        try:
            yield
        except psycopg.errors.UniqueViolation as error:
            raise _RepeatError(_said(error)) from error
        except psycopg.Error as error:
            state = error.sqlstate
            said = f"{self._place}: {_said(error)}"
            if state is None and isinstance(error, psycopg.DataError):
                raise RowsRefusedError(said) from error
            if state is not None and state[:2] in REFUSED:
                raise RowsRefusedError(said) from error
            self._drop()
            if state is None or state[:2] in AWAY or state in AWAY_STATES:
                raise SinkAwayError(said) from error
            raise SinkUnfitError(said) from error

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = psycopg.connect(
                **self._parameters,
                autocommit=True,
                # What is prepared belongs to one connection, and a pool may give another.
                prepare_threshold=None,
            )
        return self._connection

    def _drop(self) -> None:
        self._tables.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- tables ---------------------------------------------------------------------------------

    def _prepared(self, table: Table) -> _Prepared:
        found = self._tables.get(table.name)
        if found is None or found.layout.table != table:
            layout = lay_out(table)
            with self._transaction() as connection:
                found = _prepare(connection, layout)
            self._tables[table.name] = found
        return found


def parameters(url: str) -> Mapping[str, Any]:
    """What psycopg is told for an address. Raises `ConfigurationError` for what is none."""
    try:
        return {**CONNECTION, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError:
        # What libpq says may have the password in it.
        raise ConfigurationError("the address of a database cannot be read") from None


class _RepeatError(RowsRefusedError):
    """A row is there already, by its key or by something else that is unique."""


def _said(error: psycopg.Error) -> str:
    """Without the details, in which there are values of the row."""
    return error.diag.message_primary or str(error).partition("\n")[0]


def _copy(
    connection: Connection,
    statement: str,
    types: Sequence[str],
    cells: Sequence[tuple[object, ...]],
) -> None:
    with connection.cursor().copy(statement) as copy:
        copy.set_types(types)
        for each in cells:
            copy.write_row(each)


def _forget_if_any(connection: Connection, prepared: _Prepared, identities: Sequence[str]) -> None:
    if connection.execute(prepared.attempted).fetchone() == (True,):
        _forget(connection, prepared.layout, identities)


def _forget(connection: Connection, layout: Layout, identities: Sequence[str]) -> None:
    connection.execute(
        f"DELETE FROM {_at(layout, ATTEMPTS_TABLE)}"
        " WHERE table_name = %s AND message_identity = ANY(%s)",
        (layout.name, list(dict.fromkeys(identities))),
    )


def _prepare(connection: Connection, layout: Layout) -> _Prepared:
    # Whoever migrates the same schema waits here, and finds it done.
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
        (f"holdfast {layout.schema or ''}",),
    )
    _make_own_tables(connection, layout)
    types = _shape(connection, layout, _version(connection, layout, layout.name))
    _note_version(connection, layout, layout.name, layout.table.version)
    written = [column.name for column in layout.table.columns] + [MESSAGE_IDENTITY, ROW_NUMBER]
    place, names = _at(layout, layout.name), _listed(written)
    conflict = f"ON CONFLICT ({_listed(layout.key)}) DO NOTHING"
    # Planning it finds a key that is not unique in the table, and rights that are missing.
    connection.execute(
        f"EXPLAIN INSERT INTO {place} ({names}) SELECT {names} FROM {place} WHERE false {conflict}"
    )
    return _Prepared(
        layout,
        Columns(layout, CONVERSIONS),
        copy=f"COPY {place} ({names}) FROM STDIN (FORMAT BINARY)",
        types=tuple(types[name] for name in written),
        staging=f"CREATE TEMP TABLE holdfast_staged (LIKE {place} INCLUDING DEFAULTS)"
        " ON COMMIT DROP",
        copy_staged=f"COPY pg_temp.holdfast_staged ({names}) FROM STDIN (FORMAT BINARY)",
        insert_staged=f"INSERT INTO {place} ({names})"
        f" SELECT {names} FROM pg_temp.holdfast_staged {conflict}",
        attempted=f"SELECT EXISTS (SELECT FROM {_at(layout, ATTEMPTS_TABLE)})",
    )


def _make_own_tables(connection: Connection, layout: Layout) -> None:
    # Each is asked for first: who may not make a table may well write to one.
    if layout.schema is not None and not _is_there(
        connection, "to_regnamespace", _quoted(layout.schema)
    ):
        connection.execute(f"CREATE SCHEMA {_quoted(layout.schema)}")
    versions, attempts = _at(layout, VERSIONS_TABLE), _at(layout, ATTEMPTS_TABLE)
    if not _is_there(connection, "to_regclass", versions):
        connection.execute(
            f"CREATE TABLE {versions} (table_name text PRIMARY KEY, version bigint NOT NULL)"
        )
    check_own_version(_version(connection, layout, VERSIONS_TABLE) or OWN_VERSION)
    if not _is_there(connection, "to_regclass", attempts):
        connection.execute(
            f"CREATE TABLE {attempts} (table_name text NOT NULL, message_identity text NOT NULL,"
            " attempts bigint NOT NULL, last_at_utc timestamptz NOT NULL,"
            " PRIMARY KEY (table_name, message_identity))"
        )
    _note_version(connection, layout, VERSIONS_TABLE, OWN_VERSION)
    connection.execute(
        f"DELETE FROM {attempts} WHERE last_at_utc < now() - make_interval(days => %s)",
        (ATTEMPTS_KEPT_DAYS,),
    )


def _is_there(connection: Connection, question: str, name: str) -> bool:
    found = connection.execute(f"SELECT {question}(%s) IS NOT NULL", (name,)).fetchone()
    return found == (True,)


def _version(connection: Connection, layout: Layout, name: str) -> int | None:
    found = connection.execute(
        f"SELECT version FROM {_at(layout, VERSIONS_TABLE)} WHERE table_name = %s", (name,)
    ).fetchone()
    return None if found is None else int(str(found[0]))


def _note_version(connection: Connection, layout: Layout, name: str, version: int) -> None:
    if _version(connection, layout, name) != version:
        connection.execute(
            f"INSERT INTO {_at(layout, VERSIONS_TABLE)} VALUES (%s, %s)"
            " ON CONFLICT (table_name) DO UPDATE SET version = excluded.version",
            (name, version),
        )


def _shape(connection: Connection, layout: Layout, stored: int | None) -> Mapping[str, str]:
    """Afterwards the table has its columns; returns their types."""
    check_version(layout, stored or 0)
    place = _at(layout, layout.name)
    made = {name: TYPES[type_][0] for name, type_ in layout.columns.items()}
    present = {
        str(name): (str(type_), bool(demanded))
        for name, type_, demanded in connection.execute(
            "SELECT attname, typname, attnotnull AND NOT atthasdef AND attidentity = ''"
            " FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (place,),
        )
    }
    if not present:
        lines = [
            f"{_quoted(name)} {type_}{' NOT NULL' * (name in layout.required)}"
            f"{' DEFAULT now()' * (name == CREATED_AT_UTC)}"
            for name, type_ in made.items()
        ]
        connection.execute(
            f"CREATE TABLE {place} ({', '.join(lines)}, UNIQUE ({_listed(layout.key)}))"
        )
        return made
    fits = {
        name: type_ in TYPES[layout.columns[name]] if name in layout.columns else True
        for name, (type_, _) in present.items()
    }
    for name in columns_to_add(layout, stored, fits):
        connection.execute(f"ALTER TABLE {place} ADD COLUMN {_quoted(name)} {made[name]}")
    for name, (_, demanded) in present.items():
        if demanded and (name not in layout.required or name == CREATED_AT_UTC):
            raise SinkUnfitError(
                f"column {name} of {layout.table.name} has to have something in each row,"
                " and this program may write rows without"
            )
    return made | {name: type_ for name, (type_, _) in present.items()}


def _quoted(name: str) -> str:
    return f'"{name}"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _at(layout: Layout, name: str) -> str:
    return _quoted(name) if layout.schema is None else f"{_quoted(layout.schema)}.{_quoted(name)}"
