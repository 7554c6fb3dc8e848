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


def check_texts(values: Values) -> None:
    """They can be encoded, and have no character zero, which PostgreSQL has no room for."""
    joined = "".join(values)
    if not joined.isascii():
        joined.encode()
    if "\0" in joined:
        raise ValueError("has a character that is zero")


def check_integers(values: Values) -> None:
    """A database has room for them."""
    if min(values) < INTEGER_MINIMUM or max(values) > INTEGER_MAXIMUM:
        raise ValueError("is beyond 64 bits")


def check_reals(values: Values) -> None:
    """They are numbers: not every database has the others."""
    if not all(map(isfinite, values)):
        raise ValueError("is not a finite number")


CHECKS: Final[Mapping[ColumnType, Callable[[Values], None]]] = {
    ColumnType.TEXT: check_texts,
    ColumnType.INTEGER: check_integers,
    ColumnType.REAL: check_reals,
}
"""What every sink asks of all values of a column together, without those that are nothing."""


def in_utc(value: datetime) -> datetime:
    """A moment, in UTC."""
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ValueError("is a time without a zone")
    return value.astimezone(UTC)


def json_text(value: object) -> str:
    """A value as JSON."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    check_texts((text,))
    return text


CHANGES: Final[Mapping[ColumnType, Conversion]] = {
    ColumnType.REAL: float,
    ColumnType.TIMESTAMP: in_utc,
    ColumnType.JSON: json_text,
}
"""What every sink makes of a value, before it makes of it what its database takes."""


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
        own = [each.row for each in rows]
        try:
            if set(map(len, own)) != {len(self._names)}:
                raise KeyError
            by_row = list(map(self._of, own))
        except KeyError:
            by_row = list(map(self._cells, own))
        return [
            self._converted(number, values)
            for number, values in enumerate(zip(*by_row, strict=True))
        ]

    def _cells(self, row: Row) -> tuple[Any, ...]:
        """Of a row that may lack columns, or have others."""
        if unknown := [repr(name) for name in row if name not in self._known]:
            raise RowsRefusedError(f"{self._table} has no column {min(unknown)}"[:200])
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
        try:
            return self._changed(column.type, values, kinds)
        except UnicodeEncodeError:
            reason = "has a half of a surrogate pair"
        except RecursionError:
            reason = "is nested too deep"
        except (TypeError, ValueError, OverflowError) as error:
            reason = str(error)[:200]
        raise RowsRefusedError(f"column {column.name} of {self._table}: a value {reason}")

    def _changed(self, type_: ColumnType, values: Values, kinds: set[type]) -> Values:
        if kinds == {NOTHING}:
            return values
        check = CHECKS.get(type_)
        if check is not None:
            check([each for each in values if each is not None] if NOTHING in kinds else values)
        for conversion in (CHANGES.get(type_), self._conversions.get(type_)):
            if conversion is None:
                continue
            if NOTHING in kinds:
                values = [None if each is None else conversion(each) for each in values]
            else:
                values = list(map(conversion, values))
        return values


def _getter(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    if not names:
        return lambda row: ()
    if len(names) == 1:
        return lambda row: (row[names[0]],)
    return itemgetter(*names)
