"""The log by a cursor: a stream that the broker knows as a consumer, and a batch from its place.

Owns: who holds the cursor, and when the source itself releases it. Never: decides what is read; the
checkpoint does, and the cursor's place where there is none.

Invariants:
1. Each offset of a stream says which cursor it is a place of and who holds that, so that a query
   that starts again from its checkpoint is the same holder.
2. Nothing is released but what Spark has handed to `commit`.
3. A batch holds nothing and releases nothing.
"""

import logging
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from holdfast.core.errors import BrokerAbsentError
from holdfast.pipeline.cursor import CURSOR, HOLDER, Cursor, CursorError, Place, new_holder
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.offsets import check_epoch
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.ranges import LogRange, ending, plan_ranges, starting
from holdfast.pipeline.source.stream import StreamReader
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import ReadableLog

log = logging.getLogger(__name__)

_told: set[str] = set()
"""Holders for whom this process has said which query they are."""


@dataclass(frozen=True)
class HeldRange(InputPartition):
    """What one task reads, and for whom."""

    part: LogRange
    holder: str


class FollowingReader(StreamReader):
    """A stream whose place is at the broker too."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._cursor = cursor_of(options)
        self._holder = ""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins: at the cursor's place, which is where the
        options say if there is none yet."""
        asked = self.options.starting_offset
        first = "latest" if asked is None else asked
        opened = self._log_without_cursor()
        extent = opened.extent()
        if self.options.starting_time_us is not None:
            first = starting(self.options, extent, opened, default="latest")
        place = self._cursor.make(self.options.criteria.filters, first)
        self._holder = self._holder or new_holder()
        self._hold(self._holder, f"a query on {socket.gethostname()}")
        return self._marked({"v": 1, "epoch": place.epoch, "o": place.offset})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is durable now is all that this query will read. There may be no cursor yet."""
        self._target = self._log_without_cursor().extent().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch, read by who holds the cursor."""
        self._take(start)
        end = super().latestOffset(start, limit)
        # While the broker is away there may be no holder yet, and there is no end.
        return self._marked(end) if end != start and self._holder else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[HeldRange]:  # type: ignore[override]
        """The ranges of one micro-batch."""
        if not self._holder:
            # The first after a restart: Spark repeats a batch without asking for its end. The
            # broker is waited for.
            self._log_without_cursor().extent()
            self._take(start)
        return [HeldRange(part, self._holder) for part in super().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. The first of a process says which query holds the cursor: Spark
        tells it to tasks alone."""
        assert isinstance(partition, HeldRange)
        if partition.holder not in _told:
            _told.add(partition.holder)
            context = TaskContext.get()
            query = context and context.getLocalProperty("sql.streaming.queryId")
            if query:
                self._hold(partition.holder, f"Spark query {query}")
        return super().read(partition.part)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything below."""
        try:
            self._cursor.release(self._holder, int(end["o"]))
        except BrokerAbsentError as problem:
            # The next release says it too.
            log.warning("cursor not released: %s", problem)

    def _take(self, at: Mapping[str, Any]) -> None:
        """Holds the cursor, or goes on holding it, for the query that has come this far."""
        if at.get(CURSOR) == self._cursor.name:
            self._holder = at[HOLDER]
        elif not self._holder:
            # The checkpoint is of a query without this cursor: from here on it has it.
            try:
                self._cursor.make(self.options.criteria.filters, int(at["o"]))
            except BrokerAbsentError as problem:
                log.warning("cursor not made: %s", problem)
                return
            self._holder = new_holder()
        self._hold(self._holder)

    def _hold(self, holder: str, held_as: str = "") -> None:
        try:
            place = self._cursor.hold(holder, held_as)
        except BrokerAbsentError as problem:
            # Who reads the log of that broker notices, and knows what to do about it.
            log.warning("cursor not held: %s", problem)
            return
        check_selection(self.options, place)

    def _log_without_cursor(self) -> ReadableLog:
        return open_log(replace(self.options, cursor=None), self.patience_s)

    def _marked(self, offset: dict[str, Any]) -> dict[str, Any]:
        return {**offset, CURSOR: self._cursor.name, HOLDER: self._holder}


class FromCursorReader(BatchReader):
    """A look at what a cursor has not released; it stays where it is, held or not."""

    def partitions(self) -> list[LogRange]:
        """From its place to the end, or within that as the options say."""
        place = cursor_of(self.options).place()
        check_selection(self.options, place)
        opened = open_log(self.options)
        extent = opened.extent()
        check_epoch(place.epoch, extent.epoch, "the cursor")
        options = self.options
        if options.starting_offset is None and options.starting_time_us is None:
            begin = place.offset
        else:
            begin = starting(options, extent, opened, default="earliest")
        return plan_ranges(opened, options, extent, begin, ending(options, extent, opened))


def cursor_of(options: Options) -> Cursor:
    """The cursor that the options name."""
    assert options.cursor is not None, "it was asked for"
    assert options.broker is not None, "options without a broker name no cursor"
    return Cursor(options.cursor, options.broker, options.user, options.password)


def check_selection(options: Options, place: Place) -> None:
    """Refuses a cursor of another selection: what it was not asked to keep may be gone."""
    if set(options.criteria.filters) != set(place.selection):
        raise CursorError(
            f"holdfast data source: cursor {options.cursor!r} keeps {_listed(place.selection)}, but"
            f" the option 'subscribe' has {_listed(options.criteria.filters)}. Take another name in"
            " the option 'cursor' for another selection"
        )


def _listed(filters: Iterable[str]) -> str:
    return str(Criteria(filters=tuple(sorted(filters))))
