"""Where a stream begins that has no checkpoint, when the log is not as it was a moment ago or not
yet as it is expected, and how long it waits for company."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.offsets import DataLossError
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.source.stream import StreamReader
from holdfast.reading.directory import LogDirectory
from tests.builders.served import served
from tests.builders.stored import Message, forget, store

SMALL = [Message("t", b"x") for _ in range(10)]
ALL = ReadAllAvailable()


def reader_of(directory: Path, **given: str) -> StreamReader:
    options = parse_options({"dataDir": str(directory), "subscribe": "#", **given})
    return StreamReader(options, read_schema(options.columns))


def end_of(reader: StreamReader, start: dict[str, Any], limit: Any = ALL) -> int:
    return int(reader.latestOffset(start, limit)["o"])


@pytest.mark.parametrize("given", [{}, {"startingTimestamp": "4000000000000"}])
def test_a_query_of_what_is_there_may_begin_behind_that(
    tmp_path: Path, given: dict[str, str]
) -> None:
    store(tmp_path, SMALL)
    with served(tmp_path) as address:
        options = parse_options({"broker": address, "subscribe": "#", **given})
        reader = StreamReader(options, read_schema(options.columns))
        reader.prepareForTriggerAvailableNow()
        store(tmp_path, SMALL)
        start = reader.initialOffset()
        assert start["o"] == 20
        assert end_of(reader, start) == 20, "nothing, and no error"
        store(tmp_path, SMALL)
        assert end_of(reader, start) == 20, "what comes later is another query's"
        # Spark asks again where it began, for the ranges of the first batch.
        assert reader.initialOffset() == start
        [part] = reader.partitions(reader.initialOffset(), start)
        assert part.begin == part.end == 20


def test_a_time_to_come_is_no_offset_behind_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path, SMALL)
    offset_at = LogDirectory.offset_at

    def while_messages_come(self: LogDirectory, time_us: int) -> int:
        store(tmp_path, SMALL)
        return offset_at(self, time_us)

    monkeypatch.setattr(LogDirectory, "offset_at", while_messages_come)
    reader = reader_of(tmp_path, startingTimestamp="4000000000000")
    assert reader.initialOffset()["o"] == 20


def test_a_query_of_what_is_there_takes_no_more_than_that(tmp_path: Path) -> None:
    store(tmp_path, SMALL)
    reader = reader_of(tmp_path, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    store(tmp_path, SMALL)
    assert end_of(reader, reader.initialOffset()) == 10


def test_a_beginning_behind_the_end_of_the_log_is_refused_or_the_end(tmp_path: Path) -> None:
    store(tmp_path, SMALL)
    with pytest.raises(OptionError, match="'startingOffsets' is 100, but the log ends at 10; "):
        reader_of(tmp_path, startingOffsets="100").initialOffset()
    easy = reader_of(tmp_path, startingOffsets="100", failOnDataLoss="false")
    start = easy.initialOffset()
    assert start["o"] == 10
    assert end_of(easy, start) == 10
    store(tmp_path, SMALL)
    assert end_of(easy, start) == 20
    assert reader_of(tmp_path, startingOffsets="20").initialOffset()["o"] == 20


def test_a_beginning_that_the_log_has_forgotten_is_a_loss(tmp_path: Path) -> None:
    store(tmp_path, [Message("t", b"x" * 40_000)] * 400)
    forget(tmp_path)
    begin = reader_of(tmp_path, startingOffsets="earliest").initialOffset()["o"]
    assert 10 < begin < 400
    assert reader_of(tmp_path, startingTimestamp="0").initialOffset()["o"] == begin

    strict = reader_of(tmp_path, startingOffsets="10")
    start = strict.initialOffset()
    with pytest.raises(DataLossError, match=f"offsets 10 to {begin - 1} have been removed"):
        strict.partitions(start, strict.latestOffset(start, ALL))

    easy = reader_of(tmp_path, startingOffsets="10", failOnDataLoss="false")
    start = easy.initialOffset()
    parts = easy.partitions(start, easy.latestOffset(start, ALL))
    assert (parts[0].begin, parts[-1].end) == (begin, 400)
    assert easy.reportLatestOffset()["lostMessages"] == begin - 10


def test_what_a_batch_may_have_at_most_is_no_reason_to_wait(tmp_path: Path) -> None:
    store(tmp_path, [Message("t", b"x" * 100_000) for _ in range(60)])
    wait = {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "1h", "startingOffsets": "earliest"}
    reader = reader_of(tmp_path, **wait, maxBytesPerTrigger="1m")
    start, ends = reader.initialOffset(), []
    for _ in range(4):
        start = reader.latestOffset(start, ReadMaxRows(1_000))
        ends.append(start["o"])
    assert ends == sorted(set(ends)), "each takes what fits"
    assert 60 - ends[-1] < 20
    assert reader.latestOffset(start, ReadMaxRows(1_000)) == start, "so few wait for company"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"endingOffsets": "5"}, "option 'endingOffsets' is for batches"),
        ({"table": "queues"}, "option 'table' is for batches"),
    ],
)
def test_an_option_that_no_stream_has_is_the_last_line(
    spark: SparkSession, tmp_path: Path, given: dict[str, str], sentence: str
) -> None:
    directory = tmp_path / "data"
    store(directory, SMALL)
    where = {"dataDir": str(directory), "subscribe": "#"}
    where = {"dataDir": str(directory)} if "table" in given else where
    stream = spark.readStream.format("holdfast").options(**where, **given).load()
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    lines = [line for line in str(failed.value).splitlines() if "Error: " in line]
    assert sentence in lines[-1]


def test_a_column_that_there_is_not_is_named(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    store(directory, SMALL)
    asked = spark.read.schema("topic string, foo string").format("holdfast")
    frame = asked.options(dataDir=str(directory), subscribe="#").load()
    with pytest.raises(AnalysisException, match="the column 'foo'; there are topic, "):
        frame.collect()
    cased = spark.read.schema("OFFSET long, Topic string").format("holdfast")
    frame = cased.options(dataDir=str(directory), subscribe="#").load()
    assert [tuple(row) for row in frame.where("offset = 3").collect()] == [(3, "t")]
