"""`format("holdfast")`: the same rows from a directory and a broker, as batch and as stream."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import StreamingQueryException

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.pipeline.source.columns import DEFAULT_COLUMNS, read_schema
from holdfast.reading.directory import LogDirectory
from tests.builders.served import served
from tests.builders.stored import START_US, STEP_US, Message, forget, store

READS = "zebra/fx/+/reads"


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("holdfast").options(**options).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def matching(messages: list[Message]) -> list[int]:
    return [at for at, each in enumerate(messages) if each.topic.startswith("zebra")]


def test_rows_are_the_messages(
    spark: SparkSession, source: dict[str, str], messages: list[Message]
) -> None:
    frame = load(spark, subscribe="#", minPartitions=3, **source)
    assert frame.schema == read_schema(DEFAULT_COLUMNS)
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == list(range(len(messages)))
    for at, (row, message) in enumerate(zip(rows, messages, strict=True)):
        assert (row["topic"], bytes(row["value"])) == (message.topic, message.value)
        assert (row["qos"], row["shard"], row["retain"]) == (message.qos, 0, False)
        assert (row["key"], row["eventTime"]) == (None, None)
        assert row["properties"] == dict(message.properties)
        appended = datetime.fromtimestamp((START_US + at * STEP_US) / 1e6, UTC)
        assert row["timestamp"].timestamp() == pytest.approx(appended.timestamp(), abs=1e-6)


def test_filters_choose_topics(
    spark: SparkSession, source: dict[str, str], messages: list[Message]
) -> None:
    assert offsets(load(spark, subscribe=READS, **source)) == matching(messages)
    two = load(spark, subscribe="zebra/fx/1/reads,other/#", **source)
    assert {row["topic"] for row in two.select("topic").collect()} == {
        "zebra/fx/1/reads",
        "other/thing",
    }
    assert load(spark, subscribe="nothing/here", **source).count() == 0


def test_ranges_by_offset_and_by_time(spark: SparkSession, source: dict[str, str]) -> None:
    by_offset = load(spark, subscribe="#", startingOffsets="10", endingOffsets="20", **source)
    assert offsets(by_offset) == list(range(10, 20))
    beyond = load(spark, subscribe="#", startingOffsets='{"0": 95}', endingOffsets="500", **source)
    assert offsets(beyond) == list(range(95, 100))
    first_ms = START_US // 1000 + 40
    by_time = load(
        spark, subscribe="#", startingTimestamp=first_ms, endingTimestamp=first_ms + 5, **source
    )
    assert offsets(by_time) == list(range(40, 45))


def test_columns_are_chosen_at_the_source(spark: SparkSession, source: dict[str, str]) -> None:
    frame = load(spark, subscribe="#", columns="offset,publisher,value", **source)
    assert frame.columns == ["offset", "publisher", "value"]
    assert frame.count() == 100
    assert bytes(frame.where("offset = 5").collect()[0]["value"]) == b"value 5"


def test_only_what_is_durable_is_read(spark: SparkSession, log: Path) -> None:
    with served(log, durable_offset=60) as address:
        assert offsets(load(spark, subscribe="#", broker=address)) == list(range(60))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "#", "startOffset": "5"}, "option 'startoffset' is unknown"),
        ({"subscribe": "#", "maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for"),
        ({"subscribe": "a/#/b"}, "not a valid MQTT topic filter"),
    ],
)
def test_a_wrong_option_reaches_the_user(
    spark: SparkSession, log: Path, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        load(spark, dataDir=str(log), **options).count()


def test_no_log_there_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no readable log in"):
        load(spark, dataDir=str(tmp_path / "nothing"), subscribe="#").count()
    with pytest.raises(Exception, match="does not answer: Connection refused;"):
        load(spark, broker="127.0.0.1:1", subscribe="#", brokerTimeout="0s").count()


# --- streams --------------------------------------------------------------------------------------


class Collected:
    """A sink that notes the offsets of each micro-batch, and can fail once."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failing = False

    def take(self, batch: DataFrame, _batch_id: int) -> None:
        self.batches.append(offsets(batch))
        if self.failing:
            raise RuntimeError("the sink has failed on purpose")

    def all(self) -> list[int]:
        return list(chain.from_iterable(self.batches))


def run(spark: SparkSession, checkpoint: Path, **options: Any) -> Collected:
    """An available-now run of a stream; returns what its sink got."""
    return run_into(Collected(), spark, checkpoint, **options)


def run_into(
    collected: Collected, spark: SparkSession, checkpoint: Path, **options: Any
) -> Collected:
    stream = spark.readStream.format("holdfast").options(**options).load()
    query = (
        stream.writeStream.foreachBatch(collected.take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return collected


def test_available_now_takes_everything_in_bounded_batches(
    spark: SparkSession, source: dict[str, str], tmp_path: Path, messages: list[Message]
) -> None:
    found = run(
        spark,
        tmp_path / "checkpoint",
        subscribe=READS,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=25,
        **source,
    )
    assert found.all() == matching(messages)
    assert [len(batch) for batch in found.batches] == [25, 25, 25, 15]


def test_a_second_run_adds_exactly_the_rest(
    spark: SparkSession, source: dict[str, str], log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    options = {"subscribe": "#", "startingOffsets": "earliest", **source}
    assert run(spark, tmp_path / "checkpoint", **options).all() == list(range(100))
    assert run(spark, tmp_path / "checkpoint", **options).all() == []
    store(log, messages[:30], at=100)
    assert run(spark, tmp_path / "checkpoint", **options).all() == list(range(100, 130))


def test_a_stream_begins_at_the_end_unless_told(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    options = {"subscribe": "#", "dataDir": str(log)}
    assert run(spark, tmp_path / "checkpoint", **options).all() == []
    store(log, messages[:5], at=100)
    assert run(spark, tmp_path / "checkpoint", **options).all() == list(range(100, 105))


def test_a_batch_that_failed_is_repeated_as_it_was(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    options = {
        "subscribe": "#",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 40,
        "dataDir": str(log),
    }
    failing = Collected()
    failing.failing = True
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run_into(failing, spark, tmp_path / "checkpoint", **options)
    store(log, messages[:10], at=100)
    again = run(spark, tmp_path / "checkpoint", **options)
    assert again.batches[0] == failing.batches[0] == list(range(40))
    assert again.all() == list(range(110))


def test_a_processing_time_trigger_follows_the_log(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    collected = Collected()
    options = {"subscribe": "#", "startingOffsets": "earliest", "dataDir": str(log)}
    stream = spark.readStream.format("holdfast").options(**options).load()
    query = (
        stream.writeStream.foreachBatch(collected.take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        store(log, messages[:10], at=100)
        query.processAllAvailable()
    finally:
        query.stop()
    assert collected.all() == list(range(110))


def test_a_checkpoint_of_another_log_is_refused(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    options = {"subscribe": "#", "startingOffsets": "earliest"}
    run(spark, tmp_path / "checkpoint", dataDir=str(log), **options)
    other = tmp_path / "other"
    store(other, messages, seed=2)
    with pytest.raises(StreamingQueryException, match="A new log needs a new checkpoint"):
        run(spark, tmp_path / "checkpoint", dataDir=str(other), **options)


def test_a_checkpoint_of_another_selection_is_refused_until_it_is_confirmed(
    spark: SparkSession, log: Path, tmp_path: Path, messages: list[Message]
) -> None:
    place = tmp_path / "checkpoint"
    options = {"dataDir": str(log), "startingOffsets": "earliest"}
    run(spark, place, subscribe="other/thing,zebra/fx/1/reads", **options)
    same = {"subscribe": "zebra/fx/1/reads, other/thing", "maxOffsetsPerTrigger": 7}
    assert run(spark, place, columns="offset", **same, **options).batches == []
    both = (
        "made with 'subscribe other/thing,zebra/fx/1/reads', and the query has 'subscribe #': it"
        " goes on at offset 100,.*set failOnSelectionChange to false"
    )
    with pytest.raises(StreamingQueryException, match=both):
        run(spark, place, subscribe="#", **options)
    allowed = run(spark, place, subscribe="#", failOnSelectionChange="false", **options)
    assert allowed.batches == [[]], "nothing is there, and the checkpoint knows of the change"
    with pytest.raises(StreamingQueryException, match="made with 'subscribe #'"):
        run(spark, place, **same, **options)
    store(log, messages[:10], at=100)
    assert run(spark, place, subscribe="#", **options).batches == [list(range(100, 110))]


def test_a_batch_of_another_selection_is_not_repeated_until_that_is_confirmed(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    place, failing = tmp_path / "checkpoint", Collected()
    options = {"dataDir": str(log), "startingOffsets": "earliest"}
    failing.failing = True
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run_into(failing, spark, place, subscribe="other/thing", **options)
    with pytest.raises(StreamingQueryException, match="made with 'subscribe other/thing'"):
        run(spark, place, subscribePattern="other/t.*", **options)
    confirmed = {"subscribePattern": "other/t.*", "failOnSelectionChange": "false", **options}
    assert run(spark, place, **confirmed).batches == [list(range(0, 100, 10)), []]


def test_a_log_that_was_made_anew_in_its_place_is_the_one_that_is_read(
    spark: SparkSession, log: Path, messages: list[Message]
) -> None:
    options = {"dataDir": str(log), "subscribe": "#"}
    assert load(spark, **options).count() == 100
    shutil.rmtree(log)
    store(log, messages[:7], seed=2)
    assert load(spark, **options).count() == 7


@pytest.mark.parametrize("by", ["dataDir", "broker"])
def test_a_log_that_gives_offsets_again_after_a_restore_is_known_when_it_has_grown(
    spark: SparkSession, tmp_path: Path, messages: list[Message], by: str
) -> None:
    whole, restored, options = tmp_path / "whole", tmp_path / "restored", {"subscribe": "zebra/#"}
    options["startingOffsets"] = "earliest"

    def read(checkpoint: str, directory: Path) -> list[int]:
        place = tmp_path / checkpoint
        if by == "dataDir":
            return run(spark, place, dataDir=str(directory), **options).all()
        with served(directory) as address:
            return run(spark, place, broker=address, **options).all()

    store(whole, messages[:60])
    assert read("early", whole)[-1] == 59
    shutil.copytree(whole, restored)
    store(whole, messages[60:], at=60)
    assert read("late", whole)[-1] == 99
    store(restored, messages[:20], at=1_000)
    with pytest.raises(StreamingQueryException, match="the log ends at 80"):
        read("late", restored)
    store(restored, messages[:30], at=1_020)
    with pytest.raises(StreamingQueryException, match=r"message with offset 99 .* restored from"):
        read("late", restored)
    # Who had read no more than the copy has goes on.
    assert read("early", restored)[0] == 61
    assert read("early", restored) == []


# --- retention ------------------------------------------------------------------------------------


@pytest.fixture
def shortened(tmp_path: Path) -> tuple[Path, int]:
    """A log whose first part retention has taken, and where it begins now."""
    directory = tmp_path / "shortened"
    store(directory, [Message(f"t/{number % 3}", b"x" * 40_000) for number in range(400)])
    forget(directory)
    begin = LogDirectory(str(directory / LOG_DIRECTORY)).extent().begin
    assert 0 < begin < 400
    return directory, begin


@pytest.fixture(params=["dataDir", "broker"])
def shortened_source(
    request: pytest.FixtureRequest, shortened: tuple[Path, int]
) -> Iterator[dict[str, str]]:
    if request.param == "dataDir":
        yield {"dataDir": str(shortened[0])}
    else:
        with served(shortened[0]) as address:
            yield {"broker": address}


def test_a_loss_fails_the_query_unless_it_is_allowed(
    spark: SparkSession, shortened_source: dict[str, str], shortened: tuple[Path, int]
) -> None:
    begin = shortened[1]
    options = {"subscribe": "#", "startingOffsets": "0", "columns": "offset", **shortened_source}
    with pytest.raises(Exception, match=f"offsets 0 to {begin - 1} have been removed"):
        load(spark, **options).count()
    allowed = load(spark, failOnDataLoss="false", **options)
    assert offsets(allowed) == list(range(begin, 400))
    earliest = load(spark, **{**options, "startingOffsets": "earliest"})
    assert offsets(earliest) == list(range(begin, 400))
