"""The shapes of the pipeline's rows: what the source reads, and what readers of tags report.

Owns: the contract between the stages. A column is added here first.
"""

from pyspark.sql.types import (
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


TAG_READ_REPORT = StructType(
    [
        StructField("type", StringType()),
        StructField("timestamp", StringType()),
        StructField(
            "data",
            StructType(
                [
                    StructField("eventNum", LongType()),
                    StructField("format", StringType()),
                    StructField("idHex", StringType()),
                    StructField("antenna", IntegerType()),
                    StructField("peakRssi", IntegerType()),
                    StructField("reads", IntegerType()),
                    StructField("hostName", StringType()),
                ]
            ),
        ),
        StructField("unparsed", StringType()),
    ]
)
"""One tag read as the Zebra IoT Connector of a fixed reader reports it.

`unparsed` is what was no such object.
Of `data`, the connector always sends `eventNum`; the operating mode's metadata decide the rest.
RSSI is in dBm."""

TAG_READ = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("receivedAt", TimestampType()),
        StructField("readAt", TimestampType()),
        StructField("hostName", StringType()),
        StructField("eventNum", LongType()),
        StructField("idHex", StringType()),
        StructField("antenna", IntegerType()),
        StructField("peakRssi", IntegerType()),
        StructField("reads", IntegerType()),
    ]
)
"""A tag read that can be counted on: reader, event number, tag and time are well formed."""

REJECTED = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("receivedAt", TimestampType()),
        StructField("value", BinaryType()),
        StructField("rule", StringType()),
    ]
)
"""What was no tag read, with the first rule that it broke."""
