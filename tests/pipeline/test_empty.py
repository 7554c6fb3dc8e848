"""Where there is nothing to read there is an empty frame, and no error."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.builders.stored import store

NOTHING: list[dict[str, Any]] = [
    {"subscribe": "nothing/here"},
    {"subscribePattern": "nothing/.*"},
    {"subscribe": "#", "startingOffsets": "latest"},
    {"subscribe": "#", "startingOffsets": "60", "endingOffsets": "50"},
    {"subscribe": "#", "startingOffsets": "1000"},
    {"subscribe": "#", "startingTimestamp": "2099-01-01"},
    {"subscribe": "#", "endingTimestamp": "2001-01-01"},
]


def test_an_empty_range_is_an_empty_frame(spark: SparkSession, source: dict[str, str]) -> None:
    for options in NOTHING:
        frame = spark.read.format("holdfast").options(**options, **source).load()
        assert frame.collect() == [], options


def test_a_new_log_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    store(tmp_path / "new", [])
    options = {"dataDir": str(tmp_path / "new"), "subscribe": "#"}
    assert spark.read.format("holdfast").options(**options).load().collect() == []


def test_a_starting_time_later_than_every_message_can_be_an_error(
    spark: SparkSession, log: Path
) -> None:
    options = {
        "dataDir": str(log),
        "subscribe": "#",
        "startingTimestamp": "2099-01-01",
        "startingOffsetsByTimestampStrategy": "error",
    }
    with pytest.raises(Exception, match="no message is as late"):
        spark.read.format("holdfast").options(**options).load().count()
