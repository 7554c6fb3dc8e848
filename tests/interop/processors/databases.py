"""Databases for sinks, each with a way of its own to look into them from outside."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from holdfast.processors.table import Column, ColumnType, IdentifiedRow, Table

READINGS = Table(
    "readings",
    (
        Column("sensor", ColumnType.TEXT),
        Column("at", ColumnType.TIMESTAMP),
        Column("value", ColumnType.REAL, required=False),
    ),
)
AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, UTC)


def reading(number: int, *, sensor: str = "s", row_number: int = 0, **row: Any) -> IdentifiedRow:
    """The row of a message with this number."""
    values = {"sensor": sensor, "at": AT, "value": float(number), **row}
    return IdentifiedRow(f"log-{number}", row_number, values)


class Database(ABC):
    """One database, as somebody else sees it."""

    url: str

    @abstractmethod
    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""


class SqliteDatabase(Database):
    """A file, and one for the schema `bbu`."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "rows.db"
        self.url = f"sqlite:///{self.file}"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.file, isolation_level=None)
        try:
            connection.execute("ATTACH ? AS bbu", (str(self.file.with_name("rows.bbu.db")),))
            return connection.execute(statement).fetchall()
        finally:
            connection.close()


class PostgresDatabase(Database):
    """One database of a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            answer = connection.execute(statement)
            return answer.fetchall() if answer.description else []


def identities(database: Database, table: str = "readings") -> Sequence[str]:
    """The identities of all rows, in order."""
    found = database.run(f"SELECT message_identity FROM {table} ORDER BY message_identity")
    return [row[0] for row in found]
