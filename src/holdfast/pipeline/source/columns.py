"""The columns that the source can give, with their types in Spark.

Owns: Spark's names of columns. A column is added here and in the read interface.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

READ_COLUMNS = {
    "topic": ("topic", StringType()),
    "key": ("key", BinaryType()),
    "value": ("value", BinaryType()),
    "shard": ("shard", IntegerType()),
    "offset": ("offset", LongType()),
    "entry": ("entry", LongType()),
    "timestamp": ("timestamp", TimestampType()),
    "eventTime": ("event_time", TimestampType()),
    "qos": ("qos", IntegerType()),
    "retain": ("retain", BooleanType()),
    "publisher": ("publisher", LongType()),
    "expiresAt": ("expires_at", TimestampType()),
    "properties": ("properties", MapType(StringType(), StringType())),
    "headers": ("headers", ArrayType(HEADER)),
}
"""Spark's name of each column: the read interface's name of it, and its type in Spark."""

DEFAULT_COLUMNS = (
    "topic",
    "key",
    "value",
    "shard",
    "offset",
    "timestamp",
    "eventTime",
    "qos",
    "retain",
    "properties",
)
"""What `load()` has without the option `columns`."""


def read_schema(columns: tuple[str, ...]) -> StructType:
    """Spark's schema of these columns."""
    return StructType([StructField(name, READ_COLUMNS[name][1]) for name in columns])
