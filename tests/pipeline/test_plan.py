"""What a query reads: ranges, checkpoints and losses, without Spark or a log."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.source.offsets import (
    SELECTION_SHOWN,
    CheckpointError,
    DataLossError,
    format_offset,
    format_selection,
    parse_offset,
    selection_change,
)
from holdfast.pipeline.source.options import Options, parse_options
from holdfast.pipeline.source.ranges import SMALL_RANGE, LogRange, plan_ranges
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import Chunk, Extent, Question, Reach


class PlannedLog:
    """Splits evenly; reads nothing."""

    def __init__(self, begin: int, end: int) -> None:
        self._extent = Extent("epoch", begin, end)

    def extent(self) -> Extent:
        return self._extent

    def offset_at(self, time_us: int) -> int:
        raise NotImplementedError

    def reach(self, criteria: Criteria, begin: int | None, end: int | None, **limits: Any) -> Reach:
        raise NotImplementedError

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        edges = [begin + (end - begin) * part // parts for part in range(parts + 1)]
        return [(low, high) for low, high in pairwise(edges) if low < high]

    def read(self, question: Question) -> Chunk:
        raise NotImplementedError


def options(**given: str) -> Options:
    return parse_options({"dataDir": "/none", "subscribe": "#", **given})


def plan(log: PlannedLog, begin: int, end: int, **given: str) -> list[LogRange]:
    return plan_ranges(log, options(**given), log.extent(), begin, end)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50))
def test_partitions_cover_the_range_once(begin: int, length: int, parts: int) -> None:
    end = begin + length
    ranges = plan(PlannedLog(0, 2 * 10**6), begin, end, minPartitions=str(parts))
    edges = [begin, *(each.end for each in ranges)]
    assert [each.begin for each in ranges] == edges[:-1]
    assert edges[-1] == end
    assert all(each.begin < each.end for each in ranges)
    assert len(ranges) <= parts


def test_a_small_range_is_one_task_and_an_empty_one_a_task_of_nothing() -> None:
    log = PlannedLog(0, 10**6)
    assert plan(log, 0, SMALL_RANGE) == [LogRange("epoch", 0, SMALL_RANGE)]
    assert len(plan(log, 0, SMALL_RANGE + 1)) == 2
    assert plan(log, 7, 7) == [LogRange("epoch", 7, 7)]


def test_what_retention_has_taken_fails_the_query() -> None:
    with pytest.raises(DataLossError, match="offsets 10 to 99 have been removed"):
        plan(PlannedLog(100, 200), 10, 150)


def test_without_fail_on_data_loss_the_rest_is_read_and_the_loss_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ranges = plan(PlannedLog(100, 200), 10, 150, failOnDataLoss="false")
    assert "offsets 10 to 99 have been removed" in caplog.text
    assert ranges == [LogRange("epoch", 100, 150)]
    nothing = plan(PlannedLog(100, 200), 10, 50, failOnDataLoss="false")
    assert "offsets 10 to 49" in caplog.text
    assert nothing == [LogRange("epoch", 50, 50)]


def test_nothing_to_read_is_no_loss() -> None:
    assert plan(PlannedLog(100, 200), 10, 10) == [LogRange("epoch", 10, 10)]


@given(st.integers(0, 2**62))
def test_an_offset_comes_back_from_its_checkpoint(offset: int) -> None:
    document = format_offset("epoch", offset)
    assert document == {"v": 1, "epoch": "epoch", "o": offset}
    assert parse_offset(document, Extent("epoch", 0, 2**62)) == offset


def test_a_checkpoint_of_another_log_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"epoch old.*epoch new"):
        parse_offset(format_offset("old", 1), Extent("new", 0, 10))
    with pytest.raises(CheckpointError, match="version 2"):
        parse_offset({"v": 2, "epoch": "new", "o": 1}, Extent("new", 0, 10))


def test_a_checkpoint_beyond_the_end_of_the_log_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="checkpoint is at offset 11, but the log ends at 10"):
        parse_offset(format_offset("epoch", 11), Extent("epoch", 0, 10))


@given(st.permutations(["a/#", "b", "+/c", "b"]))
def test_a_selection_is_the_same_in_any_order(filters: list[str]) -> None:
    told = format_selection(Criteria(filters=tuple(filters)))
    assert told == "subscribe +/c,a/#,b"
    assert selection_change({"selection": told, "o": 1}, told) is None
    assert selection_change({"o": 1}, told) is None, "a checkpoint that does not say goes on"


def test_a_pattern_is_not_the_topic_of_its_name() -> None:
    assert format_selection(Criteria(pattern="a")) != format_selection(Criteria(filters=("a",)))


def test_ten_thousand_topics_are_a_short_text_that_no_other_ones_have() -> None:
    topics = [f"plant/{number}/temperature" for number in range(10_000)]
    told = format_selection(Criteria(filters=tuple(topics)))
    other = format_selection(Criteria(filters=(*topics[:-1], "plant/9999/pressure")))
    assert told[:SELECTION_SHOWN] == other[:SELECTION_SHOWN]
    assert told != other
    assert len(told) < SELECTION_SHOWN + 120
