"""Rows by columns, each value as a database takes it.

Owns: what a column's type accepts, the same for every database, and the reason for which a row is
refused. It names the column and the kind of value, never the value.

Columns rather than rows, since what kinds of values a column has is found out in one pass over it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from operator import itemgetter
from typing import Any, Final

from holdfast.processors.sink import RowsRefusedError
from holdfast.processors.sinks.layout import Layout
from holdfast.processors.table import ColumnType, IdentifiedRow, Row

Values = Sequence[Any]
Conversion = Callable[[Any], Any]

INTEGER_MINIMUM: Final = -(2**63)
INTEGER_MAXIMUM: Final = 2**63 - 1
"""Both databases hold whole numbers in eight bytes."""

ACCEPTED: Final[Mapping[ColumnType, frozenset[type]]] = {
    ColumnType.TEXT: frozenset({str}),
    ColumnType.INTEGER: frozenset({int}),
    ColumnType.REAL: frozenset({float, int}),
    ColumnType.BOOLEAN: frozenset({bool}),
    ColumnType.BYTES: frozenset({bytes}),
    ColumnType.TIMESTAMP: frozenset({datetime}),
    ColumnType.JSON: frozenset({dict, list, tuple, str, int, float, bool}),
}
"""The very types: a subclass may be written as something else by a driver."""
NOTHING: Final = type(None)


def in_range(value: int) -> int:
    """A whole number, if a database has room for it."""
    if not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
        raise ValueError("is beyond 64 bits")
    return value


def real(value: float) -> float:
    """A number that is one: not every database has the others."""
    if not isfinite(value):
        raise ValueError("is not a finite number")
    return float(value)


def text(value: str) -> str:
    """Text that can be encoded, without the character zero, which PostgreSQL has no room for."""
    if not value.isascii():
        value.encode()
    if "\0" in value:
        raise ValueError("has a character that is zero")
    return value


def in_utc(value: datetime) -> datetime:
    """A moment, in UTC."""
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ValueError("is a time without a zone")
    return value.astimezone(UTC)


def json_text(value: object) -> str:
    """A value as JSON."""
    return text(json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")))


CHECKED: Final[Mapping[ColumnType, Conversion]] = {
    ColumnType.TEXT: text,
    ColumnType.INTEGER: in_range,
    ColumnType.REAL: real,
    ColumnType.TIMESTAMP: in_utc,
    ColumnType.JSON: json_text,
}
"""What every sink asks of the values of a type."""


class Columns:
    """How rows of one table become columns for one database."""

    def __init__(self, layout: Layout, conversions: Mapping[ColumnType, Conversion]) -> None:
        """`conversions` are those of the database, after what is asked of each value."""
        self._table = layout.table.name
        self._columns = layout.table.columns
        self._names = [column.name for column in self._columns]
        self._known = frozenset(self._names)
        self._conversions = conversions
        self._of = _getter(self._names)

    def of(self, rows: Sequence[IdentifiedRow]) -> list[Values]:
        """The user's columns of these rows, in their order. Raises `RowsRefusedError`."""
        by_row = [self._cells(each.row) for each in rows]
        return [
            self._converted(number, values)
            for number, values in enumerate(zip(*by_row, strict=True))
        ]

    def _cells(self, row: Row) -> tuple[Any, ...]:
        if len(row) == len(self._names):
            try:
                return self._of(row)
            except KeyError:
                pass
        if unknown := sorted(name for name in row if name not in self._known):
            raise RowsRefusedError(f"{self._table} has no column {unknown[0]!r}"[:200])
        return tuple(row.get(name) for name in self._names)

    def _converted(self, number: int, values: Values) -> Values:
        column = self._columns[number]
        kinds = set(map(type, values))
        if NOTHING in kinds and column.required:
            raise RowsRefusedError(f"column {column.name} of {self._table} has nothing in a row")
        if foreign := sorted(
            kind.__name__ for kind in kinds - ACCEPTED[column.type] if kind is not NOTHING
        ):
            raise RowsRefusedError(
                f"column {column.name} of {self._table} takes {column.type.value},"
                f" and a row has {foreign[0]}"
            )
        for conversion in (CHECKED.get(column.type), self._conversions.get(column.type)):
            if conversion is not None:
                values = self._each(column.name, conversion, values, NOTHING in kinds)
        return values

    def _each(self, name: str, conversion: Conversion, values: Values, gaps: bool) -> Values:
        try:
            if gaps:
                return [None if each is None else conversion(each) for each in values]
            return list(map(conversion, values))
        except UnicodeEncodeError:
            reason = "has a half of a surrogate pair"
        except RecursionError:
            reason = "is nested too deep"
        except (TypeError, ValueError, OverflowError) as error:
            reason = str(error)[:200]
        raise RowsRefusedError(f"column {name} of {self._table}: a value {reason}")


def _getter(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    if not names:
        return lambda row: ()
    if len(names) == 1:
        return lambda row: (row[names[0]],)
    return itemgetter(*names)
