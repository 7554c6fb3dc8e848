"""The shapes of the pipeline's rows: what readers of tags report.

Owns: the contract between the stages. A column is added here first.
"""

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

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
