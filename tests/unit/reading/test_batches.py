"""Reading a range in bounded steps returns everything once, or says why not."""

from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from holdfast.reading.criteria import EVERYTHING, Criteria
from holdfast.reading.log import Chunk, Extent, Question, Reach, UnreadableLogError, batches


class SteppingLog:
    """A log in which every third offset matches, read `step` offsets at a time."""

    def __init__(self, step: int) -> None:
        self.step = step

    def extent(self) -> Extent:
        return Extent("epoch", 0, 100)

    def offset_at(self, time_us: int) -> int:
        return time_us

    def reach(self, criteria: Criteria, begin: int | None, end: int | None, **limits: Any) -> Reach:
        raise NotImplementedError

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        return [(begin, end)]

    def read(self, question: Question) -> Chunk:
        begin, end = question.begin, question.end
        until = min(end, begin + self.step)
        found = [offset for offset in range(begin, until) if offset % 3 == 0]
        batch = pa.RecordBatch.from_pydict({"offset": pa.array(found, pa.int64())})
        return Chunk(batch, until, "epoch")


@pytest.mark.parametrize("step", [1, 2, 7, 100, 1000])
def test_each_matching_message_comes_once_in_order(step: int) -> None:
    found = [batch["offset"].to_pylist() for batch in batches(SteppingLog(step), EVERYTHING, 5, 50)]
    assert all(found)
    assert list(chain.from_iterable(found)) == [
        offset for offset in range(5, 50) if offset % 3 == 0
    ]


def test_a_log_that_ends_too_early_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(UnreadableLogError, match="stopped at offset 10"):
        list(batches(SteppingLog(0), EVERYTHING, 10, 20))
