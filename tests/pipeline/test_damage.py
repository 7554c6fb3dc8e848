"""Messages that the disk has damaged are told to whoever reads over them, by every way."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cli import main
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import Question
from holdfast.reading.remote import RemoteLog
from tests.builders.damage import damage
from tests.builders.served import served
from tests.builders.stored import Message

DAMAGED = "the disk has damaged 1, whose topics cannot be told any more"


def test_a_batch_over_damage_ends_with_words_or_goes_on_without(
    spark: SparkSession, log: Path, source: dict[str, str], messages: list[Message]
) -> None:
    damage(log, b"value 37")
    reads = spark.read.format("holdfast").option("subscribe", "#").options(**source)
    with pytest.raises(Exception, match=f"of offsets 0 to 99 {DAMAGED}.*failOnDataLoss to false"):
        reads.load().collect()
    rows = reads.option("failOnDataLoss", "false").load().collect()
    expected = [each.value for each in messages if each.value != b"value 37"]
    assert [bytes(row["value"]) for row in rows] == expected


def test_a_batch_that_ends_before_the_damage_knows_nothing_of_it(
    spark: SparkSession, log: Path, source: dict[str, str]
) -> None:
    damage(log, b"value 37")
    reads = spark.read.format("holdfast").options(subscribe="#", endingOffsets="37", **source)
    assert reads.load().count() == 37


def test_a_reader_that_goes_on_is_told_how_much_it_has_lost(log: Path) -> None:
    damage(log, b"value 37")
    everything = Criteria(filters=("#",))
    with served(log) as address:
        reader = RemoteLog(address, reader="somebody")
        assert reader.reach(everything, 0, None).taken == 0
        assert [
            reader.read(Question(everything, *each)).missing for each in ((0, 30), (30, 100))
        ] == [0, 1]
        assert reader.read(Question(everything, 30, 100)).missing == 1
        assert reader.reach(everything, 0, None).taken == 1, "once, however often it was read"


def test_the_command_line_tells_of_damage_beside_what_it_shows(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(log, b"value 37")
    assert main(["log", "records", "--data-dir", str(log)]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 99
    assert f"of offsets 0 to 99 {DAMAGED}" in shown.err
