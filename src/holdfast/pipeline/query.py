"""One query over the tables about a broker.

Owns: which views it sees, and what is said of a query that cannot be run. Never: prints.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.tables import register_views


@dataclass(frozen=True, slots=True)
class Found:
    """What a query has found."""

    columns: list[str]
    rows: list[list[Any]]
    """Each value as JSON has it."""


def find(spark: SparkSession, query: str, source: Mapping[str, str], limit: int) -> Found:
    """The first rows that a query finds, `limit` at most, in tables of one moment. `source` has the
    options of the data source that say which broker or directory. Raises `ConfigurationError` for
    a query that cannot be run."""
    register_views(
        spark,
        broker=source.get("broker"),
        user=source.get("user"),
        password=source.get("password"),
        data_dir=source.get("dataDir"),
    )
    try:
        frame = spark.sql(query)
        rows = frame.limit(limit).collect()
    except PySparkException as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        raise ConfigurationError(f"the query cannot be run: {said[0]}") from error
    kinds = [each.dataType for each in frame.schema]
    return Found(frame.columns, [list(map(in_json, row, kinds)) for row in rows])


def in_json(value: Any, kind: DataType) -> Any:
    """A value of a row as JSON has it: a struct or a map is an object, an instant is in UTC, and a
    number that JSON lacks is the text of its name."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(kind, TimestampType):
        # It comes in the machine's zone, and does not say so.
        return str(value.astimezone(UTC))
    if isinstance(kind, StructType):
        return {
            each.name: in_json(part, each.dataType) for each, part in zip(kind, value, strict=True)
        }
    if isinstance(kind, MapType):
        return {
            str(in_json(key, kind.keyType)): in_json(each, kind.valueType)
            for key, each in value.items()
        }
    if isinstance(kind, ArrayType):
        return [in_json(each, kind.elementType) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
