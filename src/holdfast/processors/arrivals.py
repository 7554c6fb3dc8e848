"""What is in a processor's table: the decision record's batch analysis, and rows with a mark.

Owns: the queries, in the words of either database. Never: writes.

Rows that were committed within one second, and whose events lie minutes apart, have waited
somewhere: most likely in the broker, while nobody was there to take them.
"""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from holdfast.core.errors import ConfigurationError, OperatingError
from holdfast.processors.sinks import SQLITE, needs_psycopg, sqlite_file
from holdfast.processors.sinks.layout import CREATED_AT_UTC, NAME

STATEMENT_TIMEOUT_MS: Final = 60_000

QUERY: Final = """
SELECT
    {second} AS batch_time,
    COUNT(*) AS batch_size,
    MIN({event}) AS earliest_event,
    MAX({event}) AS latest_event
FROM {table} AS found
GROUP BY {second}
HAVING COUNT(*) > {more_than}
ORDER BY batch_time DESC
LIMIT {newest}
"""
SECOND_POSTGRESQL: Final = "DATE_TRUNC('second', {arrived})"
SECOND_SQLITE: Final = "substr({arrived}, 1, 19)"


MARKED_QUERY: Final = """
SELECT found."{number}", {arrived}, found."{event}"
FROM {table} AS found
WHERE found."{column}" = '{mark}'
"""
MARK: Final = re.compile(r"[a-z0-9-]{1,64}")


class ArrivalsUnreadError(OperatingError):
    """A table whose arrivals were asked for is not there, or its database is away."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came within one second."""

    batch_time: datetime
    batch_size: int
    earliest_event: datetime | None
    latest_event: datetime | None

    @property
    def event_span_seconds(self) -> float:
        """How far apart the events are; 0 where no row has a time."""
        if self.earliest_event is None or self.latest_event is None:
            return 0.0
        return (self.latest_event - self.earliest_event).total_seconds()


def arrivals(
    url: str,
    *,
    table: str,
    event_column: str,
    more_than: int,
    newest: int,
) -> Sequence[Arrivals]:
    """Seconds with more than so many rows, the newest first. Raises `ConfigurationError` or
    `ArrivalsUnreadError`."""
    schema, place = _place(table, event_column)
    second = SECOND_SQLITE if url.startswith(SQLITE) else SECOND_POSTGRESQL
    query = QUERY.format(
        second=second.format(arrived=CREATED_AT_UTC),
        # Of the table: SQLite takes a quoted name that is no column for a text.
        event=f'found."{event_column}"',
        table=place,
        more_than=int(more_than),
        newest=int(newest),
    )
    return [
        Arrivals(_required(second), size, _moment(earliest), _moment(latest))
        for second, size, earliest, latest in _rows(url, schema, query)
    ]


@dataclass(frozen=True, slots=True)
class Marked:
    """A row that has a mark."""

    number: int
    arrived: datetime
    event: datetime | None


def marked(
    url: str, *, table: str, column: str, mark: str, number_column: str, event_column: str
) -> Sequence[Marked]:
    """The rows that have this mark in that column. Raises `ConfigurationError` or
    `ArrivalsUnreadError`."""
    assert MARK.fullmatch(mark), "marks are our own"
    schema, place = _place(table, column, number_column, event_column)
    query = MARKED_QUERY.format(
        number=number_column,
        arrived=CREATED_AT_UTC,
        event=event_column,
        table=place,
        column=column,
        mark=mark,
    )
    return [
        Marked(int(number), _required(arrived), _moment(event))
        for number, arrived, event in _rows(url, schema, query)
    ]


def _place(table: str, *columns: str) -> tuple[str, str]:
    """The schema of a table, and the table as a query names it."""
    schema, _, name = table.rpartition(".")
    for each in (schema or "main", name, *columns):
        if NAME.fullmatch(each) is None:
            raise ConfigurationError(f"{each!r} cannot be the name of a schema, table or column")
    return schema, f'"{schema}"."{name}"' if schema else f'"{name}"'


def _rows(url: str, schema: str, query: str) -> Sequence[tuple[Any, ...]]:
    return _of_sqlite(url, schema, query) if url.startswith(SQLITE) else _of_postgresql(url, query)


def _of_sqlite(url: str, schema: str, query: str) -> Sequence[tuple[Any, ...]]:
    from holdfast.processors.sinks.sqlite import schema_file

    file = sqlite_file(url)
    path = schema_file(file, schema) if schema else file
    if not path.is_file():
        raise ArrivalsUnreadError(f"there is no database {path}")
    place = f"file:{quote(str(path))}?mode=ro"
    try:
        connection = sqlite3.connect("file::memory:" if schema else place, uri=True)
        try:
            if schema:
                connection.execute(f"ATTACH ? AS {schema}", (place,))
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ArrivalsUnreadError(f"{path}: {error}") from error


def _of_postgresql(url: str, query: str) -> Sequence[tuple[Any, ...]]:
    needs_psycopg(url)
    import psycopg

    from holdfast.processors.sinks.postgresql import parameters

    try:
        with psycopg.connect(**parameters(url)) as connection:
            connection.read_only = True
            connection.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}")
            return connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error).partition("\n")[0]
        raise ArrivalsUnreadError(f"the database: {said}") from error


def _required(value: datetime | str) -> datetime:
    found = _moment(value)
    assert found is not None, "a row has a time at which it was committed"
    return found


def _moment(value: datetime | str | None) -> datetime | None:
    """A time as either database has it; one without a zone is in UTC, as its column says."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ArrivalsUnreadError("a column of times has something else in it") from None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
