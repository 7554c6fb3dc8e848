"""Tag reads out of payloads: five rows in, each with its fate."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.pipeline.schemas import REJECTED, TAG_READ
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.transform.tag_reads import deduplicated, parsed, rejected

RECEIVED = datetime(2025, 3, 1, 12, 0, 5, tzinfo=UTC)


def report(**changes: Any) -> dict[str, Any]:
    data = {
        "eventNum": 1,
        "format": "epc",
        "idHex": "e280116020001234",
        "antenna": 2,
        "peakRssi": -51,
        "reads": 3,
        "hostName": "FX9600-01",
    }
    return {"type": "SIMPLE", "timestamp": "2025-03-01T12:00:00.250+0000", "data": data} | changes


def without(name: str) -> dict[str, Any]:
    data = {key: value for key, value in report()["data"].items() if key != name}
    return report(data=data)


def having(**changes: Any) -> dict[str, Any]:
    return report(data=report()["data"] | changes)


def raw(spark: SparkSession, *payloads: bytes | dict[str, Any]) -> DataFrame:
    rows = [
        (
            "zebra/fx/1/reads",
            payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
            offset,
            RECEIVED,
        )
        for offset, payload in enumerate(payloads)
    ]
    return spark.createDataFrame(rows, read_schema(("topic", "value", "offset", "timestamp")))


def test_a_read_is_understood(spark: SparkSession) -> None:
    frame = parsed(raw(spark, report()))
    assert frame.schema.simpleString() == TAG_READ.simpleString()
    [row] = frame.collect()
    assert (row["hostName"], row["eventNum"], row["antenna"]) == ("FX9600-01", 1, 2)
    assert (row["idHex"], row["peakRssi"], row["reads"]) == ("E280116020001234", -51, 3)
    assert row["readAt"].timestamp() == datetime(2025, 3, 1, 12, 0, 0, 250_000, UTC).timestamp()
    assert row["receivedAt"].timestamp() == RECEIVED.timestamp()


@pytest.mark.parametrize(
    "time",
    ["2025-03-01T12:00:00Z", "2025-03-01T13:00:00.000+01:00", "2025-03-01T10:00:00.000000-0200"],
)
def test_times_in_their_forms(spark: SparkSession, time: str) -> None:
    [row] = parsed(raw(spark, report(timestamp=time))).collect()
    assert row["readAt"].timestamp() == datetime(2025, 3, 1, 12, tzinfo=UTC).timestamp()


def test_what_is_no_read_is_rejected_with_the_rule_it_broke(spark: SparkSession) -> None:
    broken: dict[str, bytes | dict[str, Any]] = {
        "is a JSON object of the report's types": b'{"type": "SIMPLE", "data": {"eve',
        "names its reader": without("hostName"),
        "has an event number": without("eventNum"),
        "names a tag in hex": having(idHex="E2G0"),
        "has a time": report(timestamp="yesterday"),
    }
    frame = rejected(raw(spark, *broken.values()))
    assert frame.schema.simpleString() == REJECTED.simpleString()
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    assert [row["rule"] for row in rows] == list(broken)
    assert bytes(rows[0]["value"]) == broken["is a JSON object of the report's types"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"42",
        b"{}",
        b"\xff\xfe",
        having(antenna={"port": 1}),
        having(eventNum="x"),
    ],
)
def test_every_message_is_parsed_or_rejected(
    spark: SparkSession, payload: bytes | dict[str, Any]
) -> None:
    frame = raw(spark, report(), payload, having(eventNum=2))
    assert sorted(row["offset"] for row in parsed(frame).collect()) == [0, 2]
    assert [row["offset"] for row in rejected(frame).collect()] == [1]


def test_a_repeated_report_counts_once_as_it_came_first(spark: SparkSession) -> None:
    frame = parsed(
        raw(
            spark,
            report(),
            having(eventNum=2),
            report(timestamp="2025-03-01T12:30:00.000+0000"),
            having(hostName="FX9600-02"),
            having(eventNum=2),
        )
    )
    once = deduplicated(frame)
    assert once.schema.simpleString() == TAG_READ.simpleString()
    assert sorted(row["offset"] for row in once.collect()) == [0, 1, 3]
