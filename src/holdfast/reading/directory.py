"""Read a log in a data directory, beside a running broker too.

Owns: one kernel reader.
Never: locks or changes the directory.

Invariants:
1. Each call sees the log as it was when the call began, never less than the call before.
2. One thread at a time: a reader that is shared belongs behind a pool.
"""

import logging
from collections.abc import Sequence
from typing import Any

from holdfast import system
from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.kernel import Criteria as KernelCriteria
from holdfast.kernel import LogReader
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import (
    COLUMNS_UNASKED,
    Chunk,
    Extent,
    Question,
    Reach,
    RecordsGoneError,
    UnreadableLogError,
)

log = logging.getLogger(__name__)

BEHIND_ROWS_MAXIMUM = 100_000
"""Messages that are counted behind a range: a few milliseconds of a question that a query asks for
each micro-batch, ..."""
BEHIND_OFFSETS_MAXIMUM = 2_000_000
"""... and offsets among which they are looked for, where few match."""
ALL = 2**62
"""More rows, and more bytes, than any log has."""


class LogDirectory:
    """A `ReadableLog` over files."""

    durable_offset: int | None = None
    """Set by the broker before each use, since it knows best; otherwise the files tell."""
    kept_from: int | None = None
    """Set by the broker for who asks for what is kept from here on, before the log is whole."""

    def __init__(self, directory: str) -> None:
        self._last: tuple[Criteria, KernelCriteria] | None = None
        try:
            self._reader = LogReader.open(directory)
        except OSError as problem:
            raise UnreadableLogError(f"no readable log in {directory}: {problem}") from problem

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        reader = self._refreshed()
        return Extent(reader.epoch(), self._begin(reader), reader.end_offset())

    def segments(self) -> list[dict[str, object]]:
        """The files that the log lies in."""
        return self._refreshed().segments()

    def topics(self, topic_filter: str, after: str, limit: int) -> list[tuple[str, int]]:
        """The first `limit` topics after a name that match, by name, with their number of stored
        messages."""
        return self._refreshed().topics(topic_filter.encode(), after.encode(), limit)

    def recorded(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """What recovery would find of parties: what they have acknowledged, what was in flight to
        them when they were last at rest, and at QoS 2 since then; and retained messages."""
        return self._refreshed().recorded()

    def progress(
        self, parties: Sequence[int], begin: int, end: int, number: int, rows_maximum: int
    ) -> tuple[dict[str, Any], int | None]:
        """What records that lie before messages from `begin` to before `end` say that parties had
        acknowledged, and at which control number to go on."""
        return self._refreshed().progress(
            set(parties),
            from_offset=begin,
            from_number=number,
            to_offset=end,
            rows_maximum=rows_maximum,
        )

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return self._refreshed().offset_at(time_us)

    def reach(
        self,
        criteria: Criteria,
        begin: int | None,
        end: int | None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """The end of a range with so many matching messages, or about so many bytes of them, `end`
        at most: without it, the durable end. Without a beginning, the log's."""
        reader = self._refreshed()
        extent = Extent(reader.epoch(), self._begin(reader), reader.end_offset())
        first = max(extent.begin, extent.begin if begin is None else begin)
        found, count = reader.reach(
            self._compiled(criteria),
            from_offset=first,
            to_offset=max(first, extent.end if end is None else min(end, extent.end)),
            rows_maximum=ALL if rows is None else rows,
            bytes_maximum=2**64 - 1 if size_bytes is None else size_bytes,
        )
        behind, is_exact = self._behind(reader, criteria, found, extent.end)
        return Reach(
            extent,
            found,
            count,
            self._stored_at_us(found, extent),
            system.now_us(),
            behind,
            is_exact,
            None if begin is None else self._stored_at_us(begin - 1, extent),
            self._stored_at_us(found - 1, extent),
        )

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range: at most `parts`, unless each may have
        no more than so many rows. Where `READ_PARTS_MAXIMUM` ranges do not do, the last one has
        more."""
        reader, compiled = self._refreshed(), self._compiled(criteria)
        ranges = reader.split(compiled, from_offset=begin, to_offset=end, parts=parts)
        if rows is None:
            return ranges
        cut: list[tuple[int, int]] = []
        for first, to in ranges:
            while first < to and len(cut) < READ_PARTS_MAXIMUM:
                reached, _ = reader.reach(
                    compiled,
                    from_offset=first,
                    to_offset=to,
                    rows_maximum=rows,
                    bytes_maximum=2**64 - 1,
                )
                cut.append((first, reached))
                first = reached
        return [*cut[:-1], (cut[-1][0], end)] if cut else cut

    def read(self, question: Question) -> Chunk:
        """The matching messages from `begin` on, up to a number of rows and bytes."""
        reader = self._refreshed()
        available_from = self._begin(reader)
        if question.begin < available_from:
            raise RecordsGoneError(question.begin, min(available_from, question.end))
        return self._chunk(reader, question)

    def read_left(self, question: Question) -> Chunk:
        """As `read`, and from before the log's beginning what retention has left there, since
        somebody still needs it."""
        return self._chunk(self._refreshed(), question)

    def _chunk(self, reader: LogReader, question: Question) -> Chunk:
        from holdfast.reading.columns import record_batch

        names = COLUMNS_UNASKED if question.columns is None else question.columns
        data, next_offset, missing = reader.read(
            self._compiled(question.criteria),
            names,
            from_offset=question.begin,
            to_offset=question.end,
            rows_maximum=question.rows_maximum,
            bytes_maximum=question.bytes_maximum,
        )
        return Chunk(record_batch(data, names), next_offset, reader.epoch(), missing)

    def _begin(self, reader: LogReader) -> int:
        begin = reader.begin_offset()
        return begin if self.kept_from is None else min(begin, self.kept_from)

    def _behind(
        self, reader: LogReader, criteria: Criteria, begin: int, end: int
    ) -> tuple[int, bool]:
        """How many messages of the topics lie there, or at least lie there; and whether those are
        all."""
        reached, count = reader.reach(
            self._compiled(criteria),
            from_offset=begin,
            to_offset=min(end, begin + BEHIND_OFFSETS_MAXIMUM),
            rows_maximum=BEHIND_ROWS_MAXIMUM,
            bytes_maximum=2**64 - 1,
        )
        return count, reached >= end

    def _stored_at_us(self, offset: int, extent: Extent) -> int | None:
        """When the message with an offset was stored, if it is there."""
        if not extent.begin <= offset < extent.end:
            return None
        data, _, _ = self._reader.read(
            _EVERYTHING,
            ["timestamp"],
            from_offset=offset,
            to_offset=offset + 1,
            rows_maximum=1,
            bytes_maximum=1,
        )
        times: bytes = data["timestamp"][1]
        return int.from_bytes(times[:8], "little") if times else None

    def _compiled(self, criteria: Criteria) -> KernelCriteria:
        """As the kernel takes it; the last one is kept, since reads follow one another."""
        if self._last is None or self._last[0] != criteria:
            self._last = (criteria, compiled(criteria))
        return self._last[1]

    def _refreshed(self) -> LogReader:
        self._reader.refresh(self.durable_offset)
        for damage in self._reader.passed_over():
            log.warning("damage in the log passed over", extra={"fields": damage})
        return self._reader


_EVERYTHING = KernelCriteria([])


def compiled(criteria: Criteria) -> KernelCriteria:
    """Criteria as the kernel takes them. Raises `ValueError` for a pattern that is none."""
    topics, keys = criteria.topics, criteria.keys
    return KernelCriteria(
        [each.encode() for each in criteria.filters],
        spans=[
            (
                span.topic_filter.encode(),
                span.from_offset,
                span.until_offset,
                span.without_publisher,
            )
            for span in criteria.spans
        ],
        pattern=criteria.pattern,
        names=None if topics is None else {each.encode() for each in topics},
        prefix=criteria.prefix.encode(),
        qos=criteria.qos,
        retain=criteria.retain,
        keys=None if keys is None else set(keys),
    )
