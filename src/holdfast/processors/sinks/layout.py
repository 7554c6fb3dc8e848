"""How a processor's table lies in a database, whichever it is.

Owns: the names of what a sink adds to a user's columns, what makes a row unique, and what a table
may be called. Never: speaks a database's language.

All tables that belong together lie in one schema: the rows, what was counted of their messages'
attempts, and the versions. So one transaction covers them, and a backup has all or nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.processors.sink import SinkUnfitError
from holdfast.processors.table import ColumnType, Table

MESSAGE_IDENTITY: Final = "message_identity"
ROW_NUMBER: Final = "row_number"
CREATED_AT_UTC: Final = "created_at_utc"
ADDED: Final[Mapping[str, ColumnType]] = {
    MESSAGE_IDENTITY: ColumnType.TEXT,
    ROW_NUMBER: ColumnType.INTEGER,
    CREATED_AT_UTC: ColumnType.TIMESTAMP,
}
"""Columns that every table has besides its own, and the sink fills."""

VERSIONS_TABLE: Final = "holdfast_tables"
ATTEMPTS_TABLE: Final = "holdfast_attempts"
OWN_VERSION: Final = 1
"""Of these two tables; it stands among the versions under the first one's name."""

ATTEMPTS_KEPT_DAYS: Final = 30
"""How long it is remembered that a message was tried. A message that another instance committed, or
that its broker has given up, is never forgotten by name; no broker keeps one for so long."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
"""What both databases take as the name of a schema, table or column; PostgreSQL has 63 bytes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as a sink has it."""

    table: Table
    schema: str | None
    name: str
    key: tuple[str, ...]
    """The columns by which a row is there once."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """All columns, the user's first."""
        return {column.name: column.type for column in self.table.columns} | dict(ADDED)

    @property
    def required(self) -> frozenset[str]:
        """Columns in which each row has something."""
        own = {column.name for column in self.table.columns if column.required}
        return frozenset(own | ADDED.keys())


def lay_out(table: Table) -> Layout:
    """How `table` lies in a database. Raises `SinkUnfitError` for one that none can have."""
    schema, _, name = table.name.rpartition(".")
    names = [column.name for column in table.columns]
    for each in (*(() if not schema else (schema,)), name, *names):
        if not NAME.fullmatch(each):
            raise SinkUnfitError(f"{each!r} cannot be the name of a schema, a table or a column")
    if name in (VERSIONS_TABLE, ATTEMPTS_TABLE):
        raise SinkUnfitError(f"a table cannot be called {name}: a table of the sink's own is")
    folded = [each.lower() for each in names]
    if taken := sorted(each for each in names if each.lower() in ADDED):
        raise SinkUnfitError(f"{table.name} cannot have a column {taken[0]}: the sink adds one")
    if len(set(folded)) < len(folded):
        raise SinkUnfitError(f"{table.name} has two columns of one name")
    required = {column.name for column in table.columns if column.required}
    if loose := [each for each in table.key if each not in required]:
        raise SinkUnfitError(
            f"{table.name} cannot have {loose[0]} in its key: it is not a column that is required"
        )
    return Layout(table, schema or None, name, table.key or (MESSAGE_IDENTITY, ROW_NUMBER))


def check_version(layout: Layout, stored: int) -> None:
    """Raises `SinkUnfitError` for a table that a newer program has made."""
    if stored > layout.table.version:
        raise SinkUnfitError(
            f"{layout.table.name} is of version {stored}, and this program knows version"
            f" {layout.table.version}"
        )


def check_own_version(stored: int) -> None:
    """Raises `SinkUnfitError` where a newer sink keeps its versions otherwise."""
    if stored > OWN_VERSION:
        raise SinkUnfitError(
            f"{VERSIONS_TABLE} is of version {stored}, and this program knows version {OWN_VERSION}"
        )


def columns_to_add(
    layout: Layout, stored_version: int | None, present: Mapping[str, bool]
) -> list[str]:
    """Which columns an existing table lacks and may be given.

    `present` says of each column that is there whether its type fits. Raises `SinkUnfitError` with
    the first column that is missing without reason, or holds something else."""
    for name, fits in present.items():
        if name in layout.columns and not fits:
            raise SinkUnfitError(
                f"column {name} of {layout.table.name} is not of a type for"
                f" {layout.columns[name].value}"
            )
    missing = [name for name in layout.columns if name not in present]
    older = stored_version is not None and stored_version < layout.table.version
    for name in missing:
        if not older or name in ADDED or name in layout.key:
            raise SinkUnfitError(f"{layout.table.name} is there already and has no column {name}")
    return missing
