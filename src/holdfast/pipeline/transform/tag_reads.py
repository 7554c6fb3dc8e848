"""From stored messages to tag reads: parsed, rejected with the rule they broke, and each once.

Owns: the rules that a report must keep to be a tag read.
Never: drops a row without a reason: parsed and rejected together are the messages that came in.

Flow: raw (the source's columns) -> parsed + rejected -> deduplicated.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from holdfast.pipeline.schemas import REJECTED, TAG_READ, TAG_READ_REPORT

READ_TIME = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXXXX][XX]"
"""The connector writes milliseconds and an offset without a colon; a colon or `Z` is taken as
well."""
HEX_IDENTIFIER = "^([0-9A-Fa-f]{4})+$"
"""An EPC bank is read in words of 16 bits."""


def parsed(raw: DataFrame) -> DataFrame:
    """The rows that keep all rules, in the shape TAG_READ."""
    judged = _judged(raw)
    return judged.where(f.col("rule").isNull()).select(*TAG_READ.names)


def rejected(raw: DataFrame) -> DataFrame:
    """The rows that break a rule, in the shape REJECTED, with the first that they break."""
    return _judged(raw).where(f.col("rule").isNotNull()).select(*REJECTED.names)


def deduplicated(reads: DataFrame) -> DataFrame:
    """Each read once, as it came first.

    A reader that was not sure of its last reports sends them again, and QoS 1 may repeat a message:
    in both cases the same reader repeats the same event number. So that pair is the key, and
    nothing else is.
    """
    order = Window.partitionBy("hostName", "eventNum").orderBy("offset")
    first = reads.withColumn("place", f.row_number().over(order)).where(f.col("place") == 1)
    return first.select(*TAG_READ.names)


def _judged(raw: DataFrame) -> DataFrame:
    text = f.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "unparsed"}
    report = f.from_json(text, TAG_READ_REPORT, options)
    taken = raw.select("offset", "topic", "timestamp", "value", report.alias("report"))
    flat = taken.select(
        "offset",
        "topic",
        f.col("timestamp").alias("receivedAt"),
        "value",
        f.try_to_timestamp(f.col("report.timestamp"), f.lit(READ_TIME)).alias("readAt"),
        f.col("report.data.hostName").alias("hostName"),
        f.col("report.data.eventNum").alias("eventNum"),
        f.upper("report.data.idHex").alias("idHex"),
        f.col("report.data.antenna").alias("antenna"),
        f.col("report.data.peakRssi").alias("peakRssi"),
        f.col("report.data.reads").alias("reads"),
        f.col("report.unparsed").alias("unparsed"),
    )
    return flat.withColumn("rule", _broken_rule())


def _broken_rule() -> Column:
    """The first rule that a row breaks, or null."""
    return (
        f.when(f.col("unparsed").isNotNull(), "is a JSON object of the report's types")
        .when(f.col("hostName").isNull(), "names its reader")
        .when(f.col("eventNum").isNull(), "has an event number")
        .when(~f.coalesce(f.col("idHex").rlike(HEX_IDENTIFIER), f.lit(False)), "names a tag in hex")
        .when(f.col("readAt").isNull(), "has a time")
    )
