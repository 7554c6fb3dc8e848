"""One query over the tables about a broker.

Owns: which views it sees, and what is said of a query that cannot be run. Never: prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.json_values import in_json
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
