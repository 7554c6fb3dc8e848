"""What the log remembers of producers: how far each has come, by its name.

Owns: the records of producers. Never: knows what a sequence number counts: a batch of a writer, or
a message of a protocol that numbers them.

Invariants:
1. A producer's sequence number never moves back while it is remembered.
2. A producer with a batch on its way into the log is not forgotten.
"""

from dataclasses import replace

from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import (
    PendingBatch,
    ProducerRecord,
    Table,
    format_producer,
    parse_producer,
)
from holdfast.core.limits import (
    PRODUCER_KEPT_S,
    PRODUCER_OF_ONE_BATCH_KEPT_S,
    PRODUCERS_MAXIMUM,
)
from holdfast.core.units import SECOND_US

FORGOTTEN_AT_ONCE = 100
"""Producers that one sweep forgets, with a record each."""


class Producers:
    """All of them."""

    def __init__(self, records: ControlRecords, parties: Parties) -> None:
        self._records = records
        self._parties = parties
        self.count = records.refresh().count(Table.PRODUCERS)

    def pending(self) -> list[tuple[str, ProducerRecord]]:
        """Those with a batch on its way into the log, as a start finds them."""
        rows = self._records.refresh().producers_pending()
        return [(key.decode(), parse_producer(value)) for key, value in rows]

    def find(self, name: str) -> ProducerRecord | None:
        """What is remembered of a producer."""
        value = self._records.get(Table.PRODUCERS, name.encode())
        return parse_producer(value) if value else None

    def new(self, user_name: str | None, now_us: int) -> ProducerRecord:
        """One that was not known; it is not on record yet. Raises a `BatchRefusedError` where there
        are too many."""
        if self.count >= PRODUCERS_MAXIMUM:
            sentence = f"{PRODUCERS_MAXIMUM} producers are remembered, and no more may be"
            raise BatchRefusedError(BatchRefusal.BUSY, sentence)
        return ProducerRecord(party=self._parties.durable(now_us), user_name=user_name)

    def decide(
        self, name: str, producer: ProducerRecord, batch: PendingBatch, now_us: int
    ) -> ProducerRecord:
        """The next batch is this one and no other; or so far it has come."""
        if self.find(name) is None:
            self.count += 1
        decided = replace(producer, pending=batch, forget_at_us=None)
        self._put(name, decided, now_us)
        return decided

    def done(self, name: str, producer: ProducerRecord, now_us: int) -> int:
        """All rows of the pending batch are in the log. Returns the log position at which that is
        on record."""
        batch = producer.pending
        assert batch is not None, "it was decided"
        ended = replace(
            producer,
            sequence=batch.sequence,
            rows=batch.rows,
            pending=None,
            forget_at_us=_forget_at_us(batch, now_us),
        )
        return self._put(name, ended, now_us)

    def give_up(
        self, name: str, producer: ProducerRecord, batch: PendingBatch, now_us: int
    ) -> None:
        """No more rows of the pending batch will come: it is neither done nor on its way."""
        given_up = replace(producer, pending=batch, forget_at_us=_forget_at_us(batch, now_us))
        self._put(name, given_up, now_us)

    def sweep(self, now_us: int) -> None:
        """Forgets who has not come for long."""
        for key in self._records.refresh().producers_unused(now_us, FORGOTTEN_AT_ONCE):
            producer = self.find(key.decode())
            # The view may be a little behind.
            if producer is not None and (producer.forget_at_us or now_us + 1) <= now_us:
                self._records.put(Table.PRODUCERS, key, b"", now_us)
                self.count -= 1

    def _put(self, name: str, producer: ProducerRecord, now_us: int) -> int:
        value = format_producer(producer)
        return self._records.put(Table.PRODUCERS, name.encode(), value, now_us)


def _forget_at_us(batch: PendingBatch, now_us: int) -> int:
    kept_s = PRODUCER_OF_ONE_BATCH_KEPT_S if batch.is_last else PRODUCER_KEPT_S
    return now_us + kept_s * SECOND_US
