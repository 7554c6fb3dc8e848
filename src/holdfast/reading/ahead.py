"""Read on while what was read is used: the next chunk of a range is on its way when it is asked
for.

Owns: one thread, and the one read that it is at.
Never: reads behind the end that was asked for, or further ahead than one chunk, so that memory is
bounded by two.

Invariants:
1. The answers are those of the log below, in the order of the questions; an error of a read that
   was ahead is raised when that read is asked for, and the same question asked again is a new one.
2. One thread at a time uses the log below.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Self, TypeVar

from holdfast.reading.criteria import Criteria
from holdfast.reading.log import (
    Chunk,
    Extent,
    Question,
    Reach,
    ReadableLog,
)

T = TypeVar("T")


class ReadAhead:
    """A `ReadableLog` for one who reads a range from its beginning to its end."""

    def __init__(self, inner: ReadableLog) -> None:
        self._inner = inner
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._next: tuple[Question, Future[Chunk]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the read that is ahead, since the log below outlives this."""
        self._thread.shutdown()

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        return self._alone(self._inner.extent)

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return self._alone(lambda: self._inner.offset_at(time_us))

    def reach(
        self,
        criteria: Criteria,
        begin: int | None,
        end: int | None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """The end of a range with so much in it."""
        return self._alone(
            lambda: self._inner.reach(criteria, begin, end, rows=rows, size_bytes=size_bytes)
        )

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges that cover the range."""
        return self._alone(lambda: self._inner.split(criteria, begin, end, parts, rows=rows))

    def read(self, question: Question) -> Chunk:
        """The matching messages from `begin` on; what follows on them is read from now on."""
        ahead, self._next = self._next, None
        if ahead is not None and ahead[0] == question:
            chunk = ahead[1].result()
        else:
            chunk = self._alone(lambda: self._inner.read(question))
        if question.begin < chunk.next_offset < question.end:
            following = replace(question, begin=chunk.next_offset)
            self._next = following, self._thread.submit(self._inner.read, following)
        return chunk

    def _alone(self, ask: Callable[[], T]) -> T:
        """Asks behind whatever is ahead, on its thread."""
        return self._thread.submit(ask).result()
