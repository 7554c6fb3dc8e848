"""What a frame has to look like to be written.

Owns: which columns there may be, and of which types. Never: touches a row.
"""

from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from holdfast.core.written import WRITTEN_COLUMNS

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_BYTES: Final = (BinaryType, StringType)
_HEADERS: Final = "array<struct<key: string, value: binary>>"
COLUMN_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str, str]]] = {
    "topic": ((StringType,), "string", "The topic; without the column the option `topic`."),
    "value": (_BYTES, "binary or string", "What the message says; null is an empty message."),
    "key": (_BYTES, "binary or string", "The message key, by which groups share it out."),
    "qos": (_WHOLE, "a whole number", "0, 1 or 2; 1 without the column. All rows are stored."),
    "retain": ((BooleanType,), "boolean", "True: it becomes the topic's retained message."),
    "headers": ((ArrayType,), _HEADERS, "User properties in order, repeats kept."),
    "properties": ((MapType,), "map<string, string>", "The same as a map. Either of the two."),
    "eventTime": ((TimestampType, TimestampNTZType), "timestamp", "When it happened."),
    "expiry": (_WHOLE, "a whole number", "After how many seconds it expires."),
}
"""Of each column: its types, how they are told, and what it means."""
assert tuple(COLUMN_TYPES) == WRITTEN_COLUMNS, "the broker takes these"


class ColumnError(ValueError):
    """A column of the frame cannot be written. The message names it."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"holdfast writer: column '{column}' {problem}")


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises a `ColumnError` for a frame that cannot be written."""
    names = schema.names
    for name in names:
        if name not in COLUMN_TYPES:
            known = ", ".join(COLUMN_TYPES)
            raise ColumnError(name, f"cannot be written; select from {known}")
    if "value" not in names:
        raise ColumnError("value", "is missing")
    if ("topic" in names) == (topic is not None):
        problem = "and option 'topic' are both there" if topic else "or option 'topic' is missing"
        raise ColumnError("topic", problem)
    if "headers" in names and "properties" in names:
        raise ColumnError("headers", "and column 'properties' are the same in two forms; keep one")
    for column in schema.fields:
        _check_type(column)


def _check_type(column: StructField) -> None:
    kinds, told, _meaning = COLUMN_TYPES[column.name]
    kind: Any = column.dataType
    fits = isinstance(kind, kinds)
    if fits and column.name == "headers":
        pair = kind.elementType
        fits = isinstance(pair, StructType) and pair.names == ["key", "value"]
        fits = fits and _are_pairs(*(field.dataType for field in pair.fields))
    if fits and column.name == "properties":
        fits = _are_pairs(kind.keyType, kind.valueType)
    if not fits:
        raise ColumnError(column.name, f"must be {told}, not {kind.simpleString()}")


def _are_pairs(key: DataType, value: DataType) -> bool:
    """True if the two are a name and what has it. An empty map has neither, nor a type."""
    return isinstance(key, StringType | NullType) and isinstance(value, (*_BYTES, NullType))
