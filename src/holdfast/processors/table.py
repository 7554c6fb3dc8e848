"""The table of a processor: its name, its columns, and what makes a row itself.

Owns: what a sink has to make of a processor's rows. Never: speaks a database's language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class ColumnType(Enum):
    """What a column holds; each sink has a type of its own for it."""

    TEXT = "text"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    """A `datetime` with a zone."""
    JSON = "json"
    """What `json` writes: a mapping, a list or a plain value."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: ColumnType
    required: bool = True
    """False: a row may have nothing there."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, in a schema of its database where it names one (`bbu.tag_read_processings`).

    Besides its own columns each table has `message_identity` (text), `row_number` (its place among
    the rows of its message) and `created_at_utc` (when it was committed), which the sink fills.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns that together make a row itself; empty: the message's identity and the row's number
    do. With a key, a row that is there already is kept and the new one is counted as a repeat."""
    version: int = 1
    """Of its columns; a sink adds columns that a newer version has, and refuses an older one."""


Row = Mapping[str, Any]
"""One row, by the names of its columns."""


class IdentifiedRow(NamedTuple):
    """A row with what it came from. A tuple, since each row is made one."""

    message_identity: str
    row_number: int
    row: Row
