"""A log of tag reads, written by the kernel itself, and the same rows as Parquet files."""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.recovery.stored import PROTOCOL_VERSION, introduce
from holdfast import system
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.kernel import LIMITS, Arrivals, Inbox, Log, encode_packet

READERS = 64
ONE_READER = "zebra/fx/7/reads"
SEGMENT_BYTES = 64 << 20


def tag_read(number: int) -> bytes:
    """The report of one tag, of about 190 bytes."""
    reader = number % READERS
    data = {
        "eventNum": number,
        "format": "epc",
        "idHex": f"e28011602000{number % 4_000:04x}{reader:08x}",
        "antenna": 1 + number % 4,
        "peakRssi": -35 - number % 40,
        "reads": 1 + number % 9,
        "hostName": f"FX9600-{reader:02}",
    }
    second, millisecond = divmod(number // READERS, 1_000)
    minute, second = divmod(second, 60)
    moment = f"2026-11-22T10:{minute:02}:{second:02}.{millisecond:03}+0000"
    return json.dumps({"type": "SIMPLE", "timestamp": moment, "data": data}).encode()


def fill(data_directory: Path, messages: int) -> None:
    """Appends so many tag reads of QoS 1 to a new log."""
    log, _ = Log.open(
        str(data_directory / LOG_DIRECTORY),
        segment_bytes=SEGMENT_BYTES,
        cache_bytes=16 << 20,
        reserve_bytes=1 << 20,
        durability="os",
        seed=1,
        now_us=system.now_us(),
    )
    read_buffer = bytearray(LIMITS["turn_connection_bytes_maximum"])
    inbox, arrivals = Inbox(read_buffer), Arrivals()
    introduce(inbox, arrivals, read_buffer)
    batch = bytearray()
    for number in range(messages):
        fields = {
            "packet_identifier": number % 65_535 + 1,
            "qos": 1,
            "topic_name": f"zebra/fx/{number % READERS}/reads",
            "payload": tag_read(number),
        }
        batch += encode_packet("publish", fields, protocol_version=PROTOCOL_VERSION)
        if len(batch) > len(read_buffer) // 2 or number == messages - 1:
            read_buffer[: len(batch)] = batch
            inbox.feed(1, len(batch), system.now_us())
            inbox.decode(arrivals)
            log.append(arrivals, [], system.now_us())
            inbox.forget(arrivals)
            log.commit()
            batch.clear()
    log.close()


def as_parquet(rows: DataFrame, directory: Path, files: int) -> None:
    """The same rows in so many files of about equal length, in the order of their offsets."""
    rows.repartitionByRange(files, "offset").write.parquet(str(directory))


def parquet(spark: SparkSession, directory: Path) -> DataFrame:
    """Those files as a batch."""
    return spark.read.parquet(str(directory))
