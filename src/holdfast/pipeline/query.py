"""One query over the tables about a broker.

Owns: which views it sees, and what is said of a query that cannot be run. Never: prints.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.tables import register_views


@dataclass(frozen=True, slots=True)
class Found:
    """What a query has found."""

    columns: list[str]
    rows: list[list[Any]]


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
        rows = [list(row) for row in frame.limit(limit).collect()]
    except PySparkException as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        raise ConfigurationError(f"the query cannot be run: {said[0]}") from error
    return Found(frame.columns, rows)


def in_json(value: Any) -> Any:
    """A value of a row as JSON has it: a struct or a map is an object, and a number that JSON lacks
    is the text of its name."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, Row):
        return {name: in_json(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(in_json(key)): in_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
