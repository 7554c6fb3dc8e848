"""Batches of writers: staged in parts, decided by a commit, entered into the log once.

Owns: the order of the steps. Never: knows what a row says, or makes an object for one.

1. A part is staged: its rows are checked and written beside the log. Nothing is promised yet.
2. A commit names the parts of a batch. A control record says which they are: from then on this is
   the batch, whatever else is staged for it.
3. The rows enter the log, some in each turn, in the order of the parts and behind what connections
   have brought. Records say now and then how far they have come.
4. A record says that the batch is done. When that is durable the commit is answered and the parts
   go.

Invariants:
1. A batch's rows are in the log in one order, each once. After a crash as many are passed over as
   the log has: what the last record says, and what the log holds of the producer's party behind
   it. Records and rows lie in the log one behind the other, so none of them is counted twice.
2. A batch at or below the last one that is done is never entered again. One whose rows cannot be
   read any more is given up: it holds nothing, and it is never taken for done.
3. Rows enter only while the log keeps up (BATCH_UNCOMMITTED_BYTES_MAXIMUM); where it is full they
   wait, and nothing is given up.

Flow: admin -> here -> Arrivals.put_rows -> ... -> Arrivals.rows_taken, durable -> here -> admin.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from holdfast.broker.batches.arrow import PublishGrant, rows_of_stream
from holdfast.broker.batches.entering import Entering
from holdfast.broker.batches.producers import Producers
from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.batches.staged import StagedPart, StagedParts, read_rows, write_part
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.ground import Ground
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.durability import Promises, Waiting
from holdfast.broker.store.tables import PendingBatch, ProducerRecord
from holdfast.core.config import Config
from holdfast.core.limits import (
    BATCH_BYTES_PER_TURN,
    BATCH_PARTS_MAXIMUM,
    BATCH_ROWS_PER_TURN,
    BATCH_UNCOMMITTED_BYTES_MAXIMUM,
    BATCHES_AT_ONCE,
    STAGINGS_AT_ONCE,
)
from holdfast.kernel import Arrivals, Rows

log = logging.getLogger(__name__)

RECORDED_ROWS: Final = 16_384
"""Rows between two records of how far a batch has come: what a start counts in the log at most."""
AGAIN_AFTER_S: Final = 0.1
"""When a batch is tried again for which the log had no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A part that somebody sends."""

    producer: str
    batch: int
    part: str
    user_name: str | None
    content: bytes | bytearray
    """An Arrow stream."""
    publish: PublishGrant
    """Where its rows may be published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a driver says a batch to be."""

    producer: str
    batch: int
    user_name: str | None
    parts: tuple[str, ...]
    is_last: bool = False
    """The producer comes with no other batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch that is in the log whole, and durable."""

    producer: str
    batch: int
    rows: int | None
    """How many messages it has; `None` of one that is not the last."""
    repeated: bool
    """True: it was decided before, by another request."""


class Batches:
    """All batches of one broker."""

    def __init__(
        self, ground: Ground, records: ControlRecords, parties: Parties, promises: Promises
    ) -> None:
        world, self._schedule = ground.world, ground.schedule
        self._log = ground.kernel.log
        self._config = ground.config
        self._now_us = world.now_us
        self._workers = world.workers(STAGINGS_AT_ONCE)
        self._promises = promises
        self.producers = Producers(records, parties)
        self.parts = StagedParts(world.staged(ground.config), self._workers)
        self.active: dict[str, Entering] = {}
        """By producer: what is decided and not durably done."""
        self._entering: deque[Entering] = deque()
        self._ending: Waiting[Entering] = Waiting()
        self._put: tuple[Entering, int] | None = None
        """What has put rows into this turn, and how many."""
        self._not_before_us = 0
        self.rows_entered = 0
        """In all batches, since the start."""
        self.given_up = 0
        """Batches, since the start."""

    def reconfigure(self, config: Config) -> None:
        """Takes rows by these settings from now on."""
        self._config = config

    def recover(self) -> None:
        """Goes on with what a crash has interrupted."""
        self.parts.recover()
        for name in self.parts.producers():
            known = self.producers.find(name)
            if known is not None:
                given_up = known.given_up()
                through = known.sequence if given_up is None else given_up.sequence
                self.parts.remove_through(name, through)
        for name, producer in self.producers.pending():
            batch = producer.pending
            assert batch is not None, "it is pending"
            behind = self._log.published(producer.party, batch.offset)
            fields = {"producer": name, "batch": batch.sequence, "rows": batch.rows + behind}
            log.info("a batch goes on", extra={"fields": fields})
            self._begin(Entering(name, producer, batch.rows + behind))

    async def stage(self, new: NewPart) -> StagedPart | None:
        """Checks a part and keeps it; durable on return. `None`: its batch is decided already, so
        nobody will ask for it. Raises a `BatchRefusedError`."""
        producer = self._producer(new.producer, new.user_name)
        if producer is not None and new.batch <= _decided(producer):
            return None
        _check_goes_on(new.producer, producer, new.batch)
        self.parts.check_room(len(new.content))
        outcome: asyncio.Future[StagedPart | Exception]
        outcome = asyncio.get_running_loop().create_future()
        now_us, bytes_maximum = self._now_us(), self._config.maximum_packet_size_bytes

        def work() -> StagedPart | Exception:
            try:
                rows, count = rows_of_stream(new.content, new.publish, bytes_maximum)
                staged = StagedPart(
                    producer=new.producer,
                    batch=new.batch,
                    part=new.part,
                    user_name=new.user_name,
                    rows=count,
                    staged_at_us=now_us,
                )
                return write_part(self.parts.files, rows, staged)
            except (ValueError, OSError) as error:
                return error

        def done(found: StagedPart | Exception) -> None:
            if isinstance(found, StagedPart):
                self.parts.add(found)
            if not outcome.done():
                outcome.set_result(found)

        self._workers.run(work, done)
        found = await outcome
        if isinstance(found, OSError):
            sentence = f"the part cannot be kept: {found}; it goes on when there is room"
            raise BatchRefusedError(BatchRefusal.BUSY, sentence) from found
        if isinstance(found, Exception):
            raise BatchRefusedError(BatchRefusal.NOT_ROWS, str(found)) from found
        return found

    async def commit(self, order: Commit) -> Committed:
        """Decides what a batch is, and returns when the log has it whole and durable. If whoever
        asked goes away the batch goes on. Raises a `BatchRefusedError`."""
        producer = self._producer(order.producer, order.user_name)
        entering = self.active.get(order.producer)
        _check_goes_on(order.producer, producer, order.batch)
        repeated = producer is not None and order.batch <= _decided(producer)
        if not repeated:
            if entering is not None:
                sentence = (
                    f"batch {entering.batch.sequence} of {order.producer!r} is not in the log whole"
                    f" yet, so batch {order.batch} has to wait"
                )
                raise BatchRefusedError(BatchRefusal.UNFINISHED, sentence)
            entering = self._decide(order, producer)
        if entering is not None and entering.batch.sequence == order.batch:
            await self._ended(entering)
        else:
            await self._promises.wait_durable(self._log.end_position())
        known = self.producers.find(order.producer)
        rows = known.rows if known is not None and known.sequence == order.batch else None
        return Committed(producer=order.producer, batch=order.batch, rows=rows, repeated=repeated)

    async def forget(self, name: str, batch: int, user_name: str | None) -> int:
        """Parts of a batch that nobody will commit are gone on return; tells how many. Those of one
        that is decided stay until they are in the log. Raises a `BatchRefusedError`."""
        producer = self._producer(name, user_name)
        if producer is not None and batch <= _decided(producer):
            return 0
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def removed(count: int) -> None:
            if not gone.done():
                gone.set_result(count)

        self.parts.remove_of(name, batch, user_name, removed)
        return await gone

    def enter(self, arrivals: Arrivals) -> None:
        """Puts rows of the next batch behind all else that comes in this turn."""
        if not self._entering or self._now_us() < self._not_before_us:
            return
        for entering in tuple(self._entering):
            if entering.rows is None:
                self._read(entering)
            elif self._log.uncommitted_bytes() < BATCH_UNCOMMITTED_BYTES_MAXIMUM:
                count = arrivals.put_rows(
                    entering.rows,
                    party=entering.producer.party,
                    key_slot=entering.key_slot,
                    messages_maximum=BATCH_ROWS_PER_TURN,
                    bytes_maximum=BATCH_BYTES_PER_TURN,
                )
                self._put = entering, count
                # Batches take turns.
                self._entering.remove(entering)
                self._entering.append(entering)
                return

    def appended(self, arrivals: Arrivals, now_us: int) -> None:
        """The log has taken the rows, or some of them."""
        if self._put is None:
            return
        (entering, count), self._put = self._put, None
        taken, _ = arrivals.rows_taken()
        entering.passed(taken)
        self.rows_entered += taken
        if taken < count:
            self._not_before_us = now_us + int(AGAIN_AFTER_S * 1_000_000)
            self._schedule.later(AGAIN_AFTER_S)
        if entering.is_done():
            self._finish(entering)
        elif entering.unrecorded >= RECORDED_ROWS:
            self._record(entering)

    def durable(self, durable_position: int) -> None:
        """The log is durable up to here."""
        for entering in self._ending.take(durable_position):
            del self.active[entering.name]
            self.parts.remove_through(entering.name, entering.batch.sequence)
            entering.tell()

    def waiting(self) -> bool:
        """True if there are rows that can enter now."""
        return (
            any(entering.rows is not None for entering in self._entering)
            and self._now_us() >= self._not_before_us
            and self._log.uncommitted_bytes() < BATCH_UNCOMMITTED_BYTES_MAXIMUM
        )

    def waits_for_the_disk(self) -> bool:
        """True if the end of a batch does, or rows that are on their way to it."""
        return len(self._entering) > 0 or len(self._ending) > 0

    def sweep(self, now_us: int) -> None:
        """Once a second: parts that are too old go, and producers that do not come again."""
        self.parts.sweep(now_us, self._needed)
        self.producers.sweep(now_us)

    def close(self) -> None:
        """Waits for what is being written or read, and does no more; the next start goes on."""
        self._workers.stop()

    def _producer(self, name: str, user_name: str | None) -> ProducerRecord | None:
        producer = self.producers.find(name)
        if producer is not None and producer.user_name != user_name:
            sentence = f"the producer {name!r} is another user's; choose another name"
            raise BatchRefusedError(BatchRefusal.NOT_YOURS, sentence)
        return producer

    def _decide(self, order: Commit, producer: ProducerRecord | None) -> Entering:
        self._check(order)
        if len(self.active) >= BATCHES_AT_ONCE:
            sentence = f"{BATCHES_AT_ONCE} batches are entering the log; come back later"
            raise BatchRefusedError(BatchRefusal.BUSY, sentence)
        now_us = self._now_us()
        if producer is None:
            producer = self.producers.new(order.user_name, now_us)
        batch = PendingBatch(
            sequence=order.batch,
            parts=order.parts,
            offset=self._log.end_offset(),
            is_last=order.is_last,
        )
        decided = self.producers.decide(order.producer, producer, batch, now_us)
        entering = Entering(order.producer, decided, 0)
        self._begin(entering)
        return entering

    def _check(self, order: Commit) -> None:
        """Each part is there, is of this batch, and is named once."""
        if len(order.parts) > BATCH_PARTS_MAXIMUM:
            sentence = f"a batch has at most {BATCH_PARTS_MAXIMUM} parts, not {len(order.parts)}"
            raise BatchRefusedError(BatchRefusal.OTHER_BATCH, sentence)
        if len(set(order.parts)) < len(order.parts):
            raise BatchRefusedError(BatchRefusal.OTHER_BATCH, "a part is named twice")
        for identifier in order.parts:
            staged = self.parts.find(identifier)
            if staged is None:
                sentence = (
                    f"the staged part {identifier} is not there: it has become too old, or was"
                    " never kept; the batch has to be written again"
                )
                raise BatchRefusedError(BatchRefusal.NO_SUCH_PART, sentence)
            of = (staged.producer, staged.batch, staged.user_name)
            if of != (order.producer, order.batch, order.user_name):
                sentence = (
                    f"the staged part {identifier} is of batch {staged.batch} of"
                    f" {staged.producer!r}, not of batch {order.batch} of {order.producer!r}"
                )
                raise BatchRefusedError(BatchRefusal.OTHER_BATCH, sentence)

    def _begin(self, entering: Entering) -> None:
        self.active[entering.name] = entering
        if entering.is_done():
            self._finish(entering)
        else:
            self._entering.append(entering)
        self._schedule.soon()

    async def _ended(self, entering: Entering) -> None:
        if self.active.get(entering.name) is entering and entering.failure is None:
            kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entering.waiting.append(kept)
            self._schedule.soon()
            await kept
        if entering.failure is not None:
            raise entering.failure

    def _read(self, entering: Entering) -> None:
        """Reads the rows of its next part, beside the loop."""
        if entering.is_reading or entering.part is None:
            return
        staged, files = self.parts.find(entering.part), self.parts.files
        if staged is None:
            self._fail(entering, f"the staged part {entering.part} is not there")
            return
        entering.is_reading = True

        def work() -> Rows | Exception:
            try:
                return Rows(read_rows(files, staged))
            except (OSError, ValueError) as error:
                return error

        def done(found: Rows | Exception) -> None:
            entering.is_reading = False
            if isinstance(found, Exception):
                self._fail(entering, str(found))
                return
            entering.open(found)
            if entering.is_done():
                self._finish(entering)
            self._schedule.soon()

        self._workers.run(work, done)

    def _record(self, entering: Entering) -> None:
        batch = entering.so_far(self._log)
        self.producers.decide(entering.name, entering.producer, batch, self._now_us())

    def _finish(self, entering: Entering) -> None:
        if entering in self._entering:
            self._entering.remove(entering)
        now_us = self._now_us()
        producer = replace(entering.producer, pending=entering.so_far(self._log))
        self._ending.add(self.producers.done(entering.name, producer, now_us), entering)

    def _fail(self, entering: Entering, reason: str) -> None:
        """It stays on record, so that its rows are neither doubled nor taken for done; what it
        holds goes."""
        self._entering.remove(entering)
        del self.active[entering.name]
        batch = entering.so_far(self._log)
        self.producers.give_up(entering.name, entering.producer, batch, self._now_us())
        self.parts.remove_through(entering.name, batch.sequence)
        self.given_up += 1
        sentence = f"{_lost(entering.name, batch)}: {reason}"
        log.error("a batch cannot go on: %s", sentence)
        entering.failure = BatchRefusedError(BatchRefusal.STAGED_ROWS_LOST, sentence)
        entering.tell()

    def _needed(self) -> set[str]:
        return {part for entering in self.active.values() for part in entering.batch.parts}


def _decided(producer: ProducerRecord) -> int:
    """The last batch that nobody can change any more."""
    return producer.sequence if producer.pending is None else producer.pending.sequence


def _check_goes_on(name: str, producer: ProducerRecord | None, batch: int) -> None:
    """Nothing comes behind a batch that was given up: a number above it would say that it is
    done."""
    given_up = None if producer is None else producer.given_up()
    if given_up is not None and batch >= given_up.sequence:
        sentence = (
            f"{_lost(name, given_up)}: its staged rows could not be read any more; write on under"
            " the name of another producer"
        )
        raise BatchRefusedError(BatchRefusal.STAGED_ROWS_LOST, sentence)


def _lost(name: str, batch: PendingBatch) -> str:
    return (
        f"{batch.rows} rows of batch {batch.sequence} of {name!r} are in the log, and the rest is"
        " lost"
    )
