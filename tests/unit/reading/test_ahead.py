"""Reading ahead changes when a log is read, and nothing of what is read."""

import threading
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest

from holdfast.reading.ahead import ReadAhead
from holdfast.reading.criteria import EVERYTHING, Criteria
from holdfast.reading.log import BrokerAwayError, Chunk, Extent, Question, Reach, chunks


class NotedLog:
    """Ten offsets a read; notes which reads there were, and fails those that a test names."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended = threading.Semaphore(0)
        self.failing: set[int] = set()

    def extent(self) -> Extent:
        return Extent("epoch", 0, 100)

    def offset_at(self, time_us: int) -> int:
        return time_us

    def reach(self, criteria: Criteria, begin: int | None, end: int | None, **limits: Any) -> Reach:
        return Reach(self.extent(), 100, 100, None, 0, 0, True)

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        return [(begin, end)]

    def read(self, question: Question) -> Chunk:
        begin, end = question.begin, question.end
        self.begun.append(begin)
        until = min(end, begin + 10)
        try:
            if begin in self.failing:
                self.failing.discard(begin)
                raise BrokerAwayError(f"away at {begin}")
            values = pa.array(range(begin, until), pa.int64())
            batch = pa.RecordBatch.from_pydict({"offset": values})
            return Chunk(batch, until, "epoch")
        finally:
            self.ended.release()

    def wait_ended(self, reads: int) -> None:
        for _ in range(reads):
            assert self.ended.acquire(timeout=30)


def test_a_range_is_read_once_in_order_and_not_beyond_its_end() -> None:
    log = NotedLog()
    with ReadAhead(log) as ahead:
        read = [each.batch["offset"].to_pylist() for each in chunks(ahead, EVERYTHING, 5, 48)]
    assert list(chain.from_iterable(read)) == list(range(5, 48))
    assert log.begun == [5, 15, 25, 35, 45]


def test_one_chunk_is_read_ahead_and_no_more() -> None:
    log = NotedLog()
    with ReadAhead(log) as ahead:
        ahead.read(Question(EVERYTHING, 0, 100))
        log.wait_ended(2)
        ahead.extent()
        assert log.begun == [0, 10]
        ahead.read(Question(EVERYTHING, 10, 100))
        log.wait_ended(1)
    assert log.begun == [0, 10, 20]


def test_an_error_ahead_is_raised_where_it_belongs_and_asked_again() -> None:
    log = NotedLog()
    log.failing = {20}
    with ReadAhead(log) as ahead:
        assert [ahead.read(Question(EVERYTHING, at, 40)).next_offset for at in (0, 10)] == [10, 20]
        with pytest.raises(BrokerAwayError, match="away at 20"):
            ahead.read(Question(EVERYTHING, 20, 40))
        rest = [ahead.read(Question(EVERYTHING, at, 40)).next_offset for at in (20, 30)]
    assert rest == [30, 40]
    assert log.begun == [0, 10, 20, 20, 30]


def test_another_question_gets_its_own_answer() -> None:
    log = NotedLog()
    with ReadAhead(log) as ahead:
        for (begin, _), (_, end) in pairwise([(50, 60), (7, 9), (0, 3)]):
            chunk = ahead.read(Question(EVERYTHING, begin, end + 50))
            assert chunk.batch["offset"][0].as_py() == begin
        assert ahead.read(Question(EVERYTHING, 10, 12, ("offset",))).next_offset == 12


def test_who_stops_early_leaves_no_read_behind() -> None:
    log = NotedLog()
    with ReadAhead(log) as ahead:
        ahead.read(Question(EVERYTHING, 0, 100))
    log.wait_ended(2)
    assert log.begun == [0, 10]
