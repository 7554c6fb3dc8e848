"""What a micro-batch asks the broker, and what is made of an answer of another log."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.offsets import CheckpointError, format_offset
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.source.ranges import LogRange, RangeReader
from holdfast.pipeline.source.stream import StreamReader
from holdfast.reading.directory import LogDirectory
from tests.builders.served import served
from tests.builders.stored import Message, forget, store
from tests.pipeline.interposed import Interposed, interposed

COLUMNS = read_schema(("topic", "offset"))


@pytest.fixture
def between(log: Path) -> Iterator[Interposed]:
    with served(log) as address:
        host, port = address.split(":")
        with interposed(host, int(port)) as found:
            yield found


def epoch(data_dir: Path) -> str:
    return LogDirectory(str(data_dir / LOG_DIRECTORY)).extent().epoch


def test_a_micro_batch_is_two_requests(log: Path, between: Interposed) -> None:
    options = parse_options({"broker": between.address, "subscribe": "#"})
    reader = StreamReader(options, COLUMNS)
    start = format_offset(epoch(log), 10)
    end = reader.latestOffset(start, ReadMaxRows(20))
    assert between.asked == [("POST", "/v1/log/end")]
    [part] = reader.partitions(start, end)
    reader.reportLatestOffset()
    rows = [row for batch in reader.read(part) for row in batch["offset"].to_pylist()]
    assert rows == list(range(10, 30))
    assert between.asked[1:] == [("POST", "/v1/log/records")]


@pytest.mark.parametrize("source", ["dataDir", "broker"])
def test_rows_of_another_log_are_refused(log: Path, between: Interposed, source: str) -> None:
    where = {"dataDir": str(log), "broker": between.address}[source]
    reader = RangeReader(parse_options({source: where, "subscribe": "#"}), COLUMNS)
    with pytest.raises(CheckpointError, match="the plan of this query belongs to the log with"):
        list(reader.read(LogRange("another", 0, 10)))
    with pytest.raises(CheckpointError, match="the plan of this query belongs to the log with"):
        list(reader.read(LogRange("another", 1_000, 2_000)))


def test_what_is_gone_of_another_log_is_no_loss(tmp_path: Path) -> None:
    store(tmp_path, [Message("t", b"x" * 100_000) for _ in range(100)])
    forget(tmp_path)
    given = {"dataDir": str(tmp_path), "subscribe": "#", "failOnDataLoss": "false"}
    reader = RangeReader(parse_options(given), COLUMNS)
    assert list(reader.read(LogRange(epoch(tmp_path), 0, 100)))
    with pytest.raises(CheckpointError, match="the plan of this query belongs to the log with"):
        list(reader.read(LogRange("another", 0, 100)))


def test_what_goes_while_tasks_read_it_is_in_the_progress(tmp_path: Path) -> None:
    store(tmp_path, [Message("t", b"x" * 100_000) for _ in range(100)])
    with served(tmp_path) as address:
        given = {"broker": address, "subscribe": "#", "failOnDataLoss": "false"}
        options = parse_options({**given, "maxOffsetsPerTrigger": "50", "minPartitions": "2"})
        reader = StreamReader(options, COLUMNS)
        start = format_offset(epoch(tmp_path), 0)
        end = reader.latestOffset(start, ReadMaxRows(50))
        parts = reader.partitions(start, end)
        assert len(parts) == 2
        assert reader.reportLatestOffset()["lostMessages"] == 0
        tasks = [pickle.loads(pickle.dumps(reader)) for _ in range(2)]
        whole = list(tasks[0].read(parts[0]))
        assert whole[0].num_rows
        forget(tmp_path)
        left = [row for batch in tasks[1].read(parts[1]) for row in batch["offset"].to_pylist()]
        again = [row for batch in tasks[0].read(parts[1]) for row in batch["offset"].to_pylist()]
        assert left == again
        lost = parts[1].end - parts[1].begin - len(left)
        assert lost > 0
        reader.latestOffset(end, ReadMaxRows(50))
        assert reader.reportLatestOffset()["lostMessages"] == lost
        reader.latestOffset(end, ReadMaxRows(50))
        assert reader.reportLatestOffset()["lostMessages"] == lost
        other = StreamReader(options, COLUMNS)
        other.latestOffset(end, ReadMaxRows(50))
        assert other.reportLatestOffset()["lostMessages"] == 0
