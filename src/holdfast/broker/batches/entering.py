"""A batch on its way into the log: its parts in their order, and the rows of the one that is open.

Owns: how far one batch has come. Never: puts a row into a turn, or writes a record.
"""

import asyncio
from dataclasses import replace

from holdfast.broker.batches.refusal import BatchRefusedError
from holdfast.broker.store.tables import PendingBatch, ProducerRecord
from holdfast.kernel import Log, Rows, key_slot


class Entering:
    """One decided batch."""

    def __init__(self, name: str, producer: ProducerRecord, skip: int) -> None:
        """`skip` rows, the first ones, are in the log already."""
        assert producer.pending is not None, "it was decided"
        self.name = name
        self.producer = producer
        self.batch: PendingBatch = producer.pending
        self.key_slot = key_slot(name.encode())
        self.entered = skip
        self.unrecorded = 0
        """Rows that have entered since the last record."""
        self.rows: Rows | None = None
        self.is_reading = False
        self.failure: BatchRefusedError | None = None
        """It cannot go on."""
        self.waiting: list[asyncio.Future[None]] = []
        self._skip = skip
        self._next = 0

    @property
    def part(self) -> str | None:
        """The part that comes next; `None` if there is no other."""
        return self.batch.parts[self._next] if self._next < len(self.batch.parts) else None

    def open(self, rows: Rows) -> None:
        """The rows of the next part. Those that are in the log already are passed over."""
        self._next += 1
        self._skip -= rows.pass_over(self._skip)
        self.rows = None if rows.is_done() else rows

    def passed(self, count: int) -> None:
        """The log has taken the next rows."""
        assert self.rows is not None, "they were put"
        self.rows.pass_over(count)
        self.entered += count
        self.unrecorded += count
        if self.rows.is_done():
            self.rows = None

    def is_done(self) -> bool:
        """True if the log has all rows."""
        return self.rows is None and self.part is None and not self.is_reading

    def so_far(self, log: Log) -> PendingBatch:
        """As it is to be recorded now."""
        self.unrecorded = 0
        return replace(self.batch, rows=self.entered, offset=log.end_offset())

    def tell(self) -> None:
        """Whoever waits for its end goes on."""
        waiting, self.waiting = self.waiting, []
        for kept in waiting:
            # Whoever waited may have gone.
            if not kept.done():
                kept.set_result(None)
