"""Read a log in a data directory, beside a running broker too.

Owns: one kernel reader.
Never: locks or changes the directory.

Invariants:
1. Each call sees the log as it was when the call began, never less than the call before.
2. One thread at a time: a reader that is shared belongs behind a pool.
"""

import logging
from collections.abc import Sequence

from holdfast.kernel import LogReader
from holdfast.reading.log import (
    BATCH_BYTES_MAXIMUM,
    BATCH_ROWS_MAXIMUM,
    Chunk,
    Extent,
    RecordsGoneError,
    UnreadableLogError,
)

log = logging.getLogger(__name__)

EVERYTHING = (b"#",)


class LogDirectory:
    """A `ReadableLog` over files."""

    durable_offset: int | None = None
    """Set by the broker before each use, since it knows best; otherwise the files tell."""

    def __init__(self, directory: str) -> None:
        try:
            self._reader = LogReader.open(directory)
        except OSError as problem:
            raise UnreadableLogError(f"no readable log in {directory}: {problem}") from problem

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        reader = self._refreshed()
        return Extent(reader.epoch(), reader.begin_offset(), reader.end_offset())

    def segments(self) -> list[dict[str, object]]:
        """The files that the log lies in."""
        return self._refreshed().segments()

    def topics(self, topic_filter: str, after: str, limit: int) -> list[tuple[str, int]]:
        """The first `limit` topics after a name that match, by name, with their number of stored
        messages."""
        return self._refreshed().topics(topic_filter.encode(), after.encode(), limit)

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return self._refreshed().offset_at(time_us)

    def end_after_rows(self, filters: Sequence[str], begin: int, end: int, rows: int) -> int:
        """The end of a range with so many matching messages, `end` at most."""
        return self._refreshed().end_after_rows(
            _encoded(filters), from_offset=begin, to_offset=end, rows=rows
        )

    def split(
        self, filters: Sequence[str], begin: int, end: int, parts: int
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range."""
        return self._refreshed().split(
            _encoded(filters), from_offset=begin, to_offset=end, parts=parts
        )

    def read(
        self,
        filters: Sequence[str],
        begin: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        rows_maximum: int = BATCH_ROWS_MAXIMUM,
        bytes_maximum: int = BATCH_BYTES_MAXIMUM,
    ) -> Chunk:
        """The matching messages from `begin` on, up to a number of rows and bytes."""
        available_from = self._refreshed().begin_offset()
        if begin < available_from:
            raise RecordsGoneError(begin, min(available_from, end))
        return self.read_left(
            filters,
            begin,
            end,
            columns=columns,
            rows_maximum=rows_maximum,
            bytes_maximum=bytes_maximum,
        )

    def read_left(
        self,
        filters: Sequence[str],
        begin: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        rows_maximum: int = BATCH_ROWS_MAXIMUM,
        bytes_maximum: int = BATCH_BYTES_MAXIMUM,
    ) -> Chunk:
        """As `read`, and from before the log's beginning what retention has left there, since
        somebody still needs it."""
        from holdfast.reading.columns import record_batch

        data, next_offset = self._refreshed().read(
            _encoded(filters),
            from_offset=begin,
            to_offset=end,
            rows_maximum=rows_maximum,
            bytes_maximum=bytes_maximum,
        )
        batch = record_batch(data)
        return Chunk(batch if columns is None else batch.select(list(columns)), next_offset)

    def _refreshed(self) -> LogReader:
        self._reader.refresh(self.durable_offset)
        for damage in self._reader.passed_over():
            log.warning("damage in the log passed over", extra={"fields": damage})
        return self._reader


def _encoded(filters: Sequence[str]) -> Sequence[bytes]:
    return [each.encode() for each in filters] or EVERYTHING
