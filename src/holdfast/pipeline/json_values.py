"""Values of rows as JSON has them.

Owns: what becomes of a type that JSON lacks.
"""

import json
import math
from datetime import UTC
from decimal import Decimal
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType


def in_json(value: Any, kind: DataType) -> Any:
    """A value of a row, of Spark or of Arrow, as JSON has it: a struct or a map is an object, an
    instant is in UTC, a decimal is text with all of its digits, and a number that JSON lacks is the
    text of its name."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(kind, TimestampType):
        # It comes in the machine's zone, and does not say so.
        return str(value.astimezone(UTC))
    if isinstance(kind, StructType):
        return {each.name: in_json(value[each.name], each.dataType) for each in kind}
    if isinstance(kind, MapType):
        return {
            str(in_json(key, kind.keyType)): in_json(each, kind.valueType)
            for key, each in dict(value).items()
        }
    if isinstance(kind, ArrayType):
        return [in_json(each, kind.elementType) for each in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
