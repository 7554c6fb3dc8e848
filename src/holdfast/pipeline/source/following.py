"""The log by a cursor: a stream that the broker knows as a consumer, and a batch from its place.

Owns: who holds the cursor, and when the source itself releases it. Never: decides what is read; the
checkpoint does, and the cursor's place where there is none.

Invariants:
1. The end of each batch says which cursor it is a place of and who holds that, so that a query that
   starts again from its checkpoint is the same holder.
2. A hold begins when the checkpoint has the holder's word: Spark writes the end of a batch there
   before it asks for its partitions. A query that dies before that has left no hold behind.
3. Nothing is released but what Spark has handed to `commit`.
4. A batch holds nothing and releases nothing.
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

from holdfast.pipeline.cursor import CURSOR, HOLDER, Cursor, CursorError, Place, new_holder
from holdfast.pipeline.source.batch import BatchReader, FilteredBatchReader
from holdfast.pipeline.source.log import open_log, patience_of
from holdfast.pipeline.source.offsets import check_epoch, format_offset
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.patience import BATCH_PATIENCE_S, check_same_log, wait_s
from holdfast.pipeline.source.ranges import LogRange, ending, starting
from holdfast.pipeline.source.stream import StreamReader
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import BrokerAwayError, ReadableLog

log = logging.getLogger(__name__)

_told: set[str] = set()
"""Holders for whom this process has said which query they are."""


@dataclass(frozen=True)
class HeldRange(InputPartition):
    """What one task reads, and for whom."""

    part: LogRange
    holder: str | None
    """`None` in a batch that was planned by a query without the cursor."""


class FollowingReader(StreamReader):
    """A stream whose place is at the broker too."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._cursor = cursor_of(options)
        self._patience = patience_of(options, self.patience_s)
        self._new_holder = new_holder()
        """Of a query whose checkpoint has no word of the cursor."""
        self._held_for = ""
        """Whoever holds it, once this process has asked for that."""

    def found_beginning(self) -> dict[str, Any]:
        """The cursor's place, which is where the options say if there is none yet."""
        asked = self.options.starting_offset
        first = "latest" if asked is None else asked
        opened = self._log_without_cursor()
        extent = opened.extent()
        if self.options.starting_time_us is not None:
            first = starting(self.options, extent, opened, default="latest")
        filters = self.options.criteria.filters
        place = self._patience.ask(lambda: self._cursor.make(filters, first))
        check_same_log(extent.epoch, place.epoch)
        return format_offset(place.epoch, place.offset)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is durable now is all that this query will read. There may be no cursor yet."""
        self._target = self._log_without_cursor().extent().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch, read by who holds the cursor. The first one may have
        nothing in it: it takes the holder's word to the checkpoint."""
        holder = self._holder_in(start)
        if holder is not None:
            self._go_on_holding(holder)
            end = super().latestOffset(start, limit)
            return end if end == start else self._marked(end, holder)
        self.check_selection(start)
        filters, place = self.options.criteria.filters, int(start["o"])
        try:
            if self.must_answer(limit):
                self._patience.ask(lambda: self._cursor.join(filters, place, self._new_holder))
            else:
                self._cursor.join(filters, place, self._new_holder)
        except BrokerAwayError as away:
            wait_s(self._absence.begin_or_go_on(away))
            return start
        end = super().latestOffset(start, limit)
        return start if self._absence.told() else self._marked(end, self._new_holder)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[HeldRange]:  # type: ignore[override]
        """The ranges of one micro-batch. After a restart Spark repeats a batch without asking for
        its end, so the hold may begin here; the broker is waited for."""
        holder = self._holder_in(end)
        if holder is None:
            self.check_selection(end)
            # Planned by a query without this cursor: what it reads is kept from here on.
            filters, place = self.options.criteria.filters, int(start["o"])
            self._patience.ask(lambda: self._cursor.make(filters, place))
        elif holder != self._held_for:
            is_new = self._holder_in(start) is None
            held_as = f"a query on {socket.gethostname()}" if is_new else ""
            found = self._patience.ask(lambda: self._cursor.hold(holder, held_as))
            check_selection(self.options, found)
            self._held_for = holder
        return [HeldRange(part, holder) for part in super().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. The first of a process says which query holds the cursor: Spark
        tells it to tasks alone."""
        assert isinstance(partition, HeldRange)
        if partition.holder is not None and partition.holder not in _told:
            _told.add(partition.holder)
            context = TaskContext.get()
            query = context and context.getLocalProperty("sql.streaming.queryId")
            if query:
                self._go_on_holding(partition.holder, f"Spark query {query}")
        return super().read(partition.part)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything below."""
        holder = self._holder_in(end)
        if holder is None:
            return
        try:
            self._cursor.release(holder, int(end["o"]))
        except BrokerAwayError as problem:
            # The next release says it too.
            log.warning("cursor not released: %s", problem)

    def _go_on_holding(self, holder: str, held_as: str = "") -> None:
        try:
            place = self._cursor.hold(holder, held_as)
        except BrokerAwayError as problem:
            # Who reads the log of that broker notices, and knows what to do about it.
            log.warning("cursor not held: %s", problem)
            return
        check_selection(self.options, place)
        self._held_for = holder

    def _log_without_cursor(self) -> ReadableLog:
        return open_log(replace(self.options, cursor=None), self.patience_s)

    def _holder_in(self, at: Mapping[str, Any]) -> str | None:
        """Who holds the cursor, in an offset that is a place of it."""
        return str(at[HOLDER]) if at.get(CURSOR) == self._cursor.name else None

    def _marked(self, offset: dict[str, Any], holder: str) -> dict[str, Any]:
        return {**offset, CURSOR: self._cursor.name, HOLDER: holder}


class FromCursorReader(BatchReader):
    """A look at what a cursor has not released; it stays where it is, held or not."""

    def partitions(self) -> list[LogRange]:
        """From its place to the end, or within that as the options say."""
        place = patience_of(self.options, BATCH_PATIENCE_S).ask(cursor_of(self.options).place)
        check_selection(self.options, place)
        opened = open_log(self.options)
        extent = opened.extent()
        check_epoch(place.epoch, extent.epoch, "the cursor")
        options = self.options
        if options.starting_offset is None and options.starting_time_us is None:
            begin = place.offset
        else:
            begin = starting(options, extent, opened, default="earliest")
        return self.planned(opened, extent, begin, ending(options, extent, opened))


class FilteredFromCursorReader(FilteredBatchReader, FromCursorReader):
    """The same, with the query's filters: what they leave out stays unreleased as all else."""


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
            " the option 'cursor' for another selection, with a new checkpoint or with"
            " failOnSelectionChange=false"
        )


def _listed(filters: Iterable[str]) -> str:
    return str(Criteria(filters=tuple(sorted(filters))))
