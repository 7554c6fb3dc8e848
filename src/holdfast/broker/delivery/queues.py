"""Queues: what is true of each, whoever takes from it.

Owns: their records; which queues are attached; of each its mark, its quota and what it loses by
that, its backlog, its rest and its end. Never: knows who takes: a client's own queue is
attached by its session (mqtt.sessions), what several take from is a `SharedQueue` (groups,
redrives).

Invariants:
1. A queue is attached or at rest; one at rest is its record and its delivery state, and nothing
   here.
2. What is cut off is on record as lost, and then as done, before anybody can hear of the queue: a
   crash does not count it again. Where the loss has to wait for its row, so does that it is done:
   counted twice is better than never.
"""

from dataclasses import dataclass, replace
from typing import Final

from holdfast.broker.chores import Pieces, at_once
from holdfast.broker.delivery.handed import handed_to
from holdfast.broker.delivery.losses import Losses, loss_of
from holdfast.broker.delivery.queue_at_rest import (
    Cut,
    QueueAtRest,
    cut_to_quota,
    left_behind,
    queue_at_rest,
    skipped,
    waiting,
)
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.former_tables import parse_group, parse_redrive
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom
from holdfast.broker.store.tables import (
    DELIVERY_STATE_REMOVED,
    QueueRecord,
    Table,
    format_queue,
    parse_queue,
    party_key,
)
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.quota import UNLIMITED, Quota, quota_of
from holdfast.kernel import TRANSIENT_PARTY, new_state, state_mark, state_skip

FORMER: Final = ((Table.GROUPS, parse_group), (Table.REDRIVES, parse_redrive))
"""Tables in which former versions had shared queues, and how to read them."""
FORMER_ROWS: Final = 1_000
"""So many of those are read at once."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The queue of somebody who comes back, within its quota."""

    record: QueueRecord
    before: QueueAtRest
    queue: QueueAtRest
    lost: tuple[tuple[LossReason, Cut], ...]
    """What it lost by that, with the reasons."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is lost with a queue that ends."""

    party: int
    cut: Cut | None


class Queues:
    """All queues of the broker."""

    def __init__(
        self, config: Config, kernel: KernelStages, records: ControlRecords, losses: Losses
    ) -> None:
        self._log = kernel.log
        self._deliveries = kernel.deliveries
        self._records = records
        self._losses = losses
        self._kept = KeptFrom(kernel.log)
        self._attached: dict[int, int] = {}
        """The kernel's queue, by party."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Cuts whatever is attached from now on to these limits."""
        self._config = config

    def quota(self, record: QueueRecord) -> Quota:
        """What a queue may have; what ends with its connection loses nothing to a quota."""
        if record.party >= TRANSIENT_PARTY:
            return UNLIMITED
        most = record.messages_maximum
        return quota_of(self._config, record.kind, named=record.named, messages_maximum=most)

    def attached_mark(self, party: int) -> int | None:
        """Below which offset an attached queue has acknowledged all; `None` for one at rest."""
        queue = self._attached.get(party)
        return None if queue is None else self._deliveries.mark(queue)

    def mark(self, record: QueueRecord) -> int:
        """Below which offset a queue has acknowledged all."""
        mark = self.attached_mark(record.party)
        return self.at_rest(record).mark if mark is None else mark

    def at_rest(self, record: QueueRecord) -> QueueAtRest:
        """A queue that is not attached."""
        begin, reads = record.created_at_offset, record.reads
        return queue_at_rest(self._log, record.party, begin, reads, record.rules)

    def recover(self, now_us: int) -> list[QueueRecord]:
        """The shared queues on record. Rows of former versions are put where they belong."""
        view = self._records.refresh()
        found = {queue.party: queue for queue in map(parse_queue, view.shared_queues())}
        for table, parse in FORMER:
            after = b""
            while rows := view.rows(table, after, FORMER_ROWS):
                after, _ = rows[-1]
                for key, value in rows:
                    queue = parse(value)
                    if queue.party not in found:
                        found[queue.party] = queue
                        self.put(queue, now_us)
                    self._records.put(table, key, b"", now_us)
        return list(found.values())

    def record(self, party: int) -> QueueRecord | None:
        """The queue of a party; none of one that has gone, or is a session's and reads nothing."""
        value = self._records.get(Table.QUEUES, party_key(party))
        return parse_queue(value) if value else None

    def is_there(self, party: int) -> bool:
        """False if the queue of a party has gone."""
        return bool(self._records.get(Table.QUEUES, party_key(party)))

    def put(self, record: QueueRecord, now_us: int) -> int:
        """The queue has this record from now on; returns the log position at which that is
        durable."""
        # A bridge that only takes from its remote still has to know what it has taken.
        is_kept = bool(record.reads) or record.kind == "bridge"
        if not is_kept and not self.is_there(record.party):
            return self._log.end_position()
        value = format_queue(record) if is_kept else b""
        return self._records.put(Table.QUEUES, party_key(record.party), value, now_us)

    def begin(
        self,
        party: int,
        mark: int,
        done: list[tuple[int, int]],
        now_us: int,
        unreleased: bytes = b"",
    ) -> None:
        """A queue reads from `mark` on, without what is done; nothing is in flight. Its owner has
        published what is `unreleased`, as the kernel has it. Packet identifiers go on where they
        were: a session that is found again one day may still have some of former messages."""
        before = self._log.delivery_state(party) or b""
        state = new_state(mark, done, unreleased=unreleased, before=before)
        self._records.put_delivery_state(party_key(party), state, now_us)

    def prepare(
        self, record: QueueRecord, now_us: int, state: bytes | None = None
    ) -> Pieces[Prepared]:
        """What a queue at rest has waiting, or one in this state, within its quota, for somebody
        who comes back; changes nothing."""
        before = self.at_rest(record)
        if state is not None:
            before = replace(before, state=state, mark=state_mark(state))
        end = self._log.durable_offset()
        inquiry, quota = Inquiry(self._log), self.quota(record)
        queue, lost = yield from cut_to_quota(
            self._kept, inquiry, before, quota, end=end, now_us=now_us
        )
        return Prepared(record, before, queue, lost)

    def cut(
        self, record: QueueRecord, owner: str, prepared: Prepared | None, now_us: int
    ) -> QueueAtRest:
        """The queue within its quota, for somebody who comes back; what it loses by that is the
        owner's loss. What was prepared is taken if the queue is still what it was then."""
        if prepared is None or not self._is_as_before(record, prepared.before):
            prepared = at_once(self.prepare(record, now_us))
        for reason, cut in prepared.lost:
            self.lose(owner, record.party, reason, cut, now_us)
        queue = prepared.queue
        if prepared.lost and self._losses.write_ahead(now_us):
            state = queue.state or new_state(queue.mark)
            self._records.put_delivery_state(party_key(record.party), state, now_us)
        return queue

    def cut_on(self, record: QueueRecord, prepared: Prepared, now_us: int) -> QueueAtRest:
        """The same for a queue that keeps the newest, which was attached while it was looked at and
        had something to lose, and rests now: of its state only what its owner has published and not
        released may have changed since."""
        before = self.at_rest(record)
        first = max(end for _, cut in prepared.lost for _, end in cut.ranges)
        queue = skipped(before, first)
        found = replace(prepared, before=before, queue=queue)
        return self.cut(record, record.owner, found, now_us)

    def lose(self, owner: str, party: int, reason: LossReason, cut: Cut, now_us: int) -> None:
        """The owner of a queue has lost this of it."""
        self._losses.add(loss_of(owner, party, reason, cut.ranges, cut.count, now_us))

    def lose_waiting(self, record: QueueRecord, reason: LossReason, now_us: int) -> None:
        """A queue at rest has nothing more of what is durable, waiting or in flight, its own or
        handed to it; its owner has lost that."""
        end = self._log.durable_offset()
        left = at_once(self.left(record, None, Inquiry(self._log)))
        handed = [(it.offset, it.offset + 1) for it in handed_to(self._log, record.party)]
        found = left.cut or Cut([], 0)
        if count := found.count + len(handed):
            cut = Cut([*found.ranges, *handed], count)
            self.lose(record.owner, record.party, reason, cut, now_us)
            self._losses.write_ahead(now_us)
        self.abandon(record.party, end, now_us)

    def abandon(self, party: int, end: int, now_us: int) -> None:
        """A queue at rest has nothing of what lies before `end`, waiting or in flight. Exchanges of
        QoS 2 that it has begun are ended: whoever has their packet identifiers would take another
        message for the one that it knows (MQTT 5 section 4.3.3). What its owner has published and
        not released is known on."""
        state = self._log.delivery_state(party)
        if state:
            self.rest(party, state_skip(state, end, abandons=True), now_us)
        else:
            self.begin(party, end, [], now_us)

    def attach(self, party: int, queue: int) -> None:
        """It is the kernel's from now on, under this number."""
        self._attached[party] = queue

    def open(
        self,
        queue: QueueAtRest,
        owner: int,
        end_offset: int,
        sent_before: int,
        *,
        whole: bool = False,
    ) -> int:
        """Attaches a shared queue, which reads up to `end_offset` and hands over what is lost of it
        in the name of `owner`; what lies below `sent_before` may have been sent. One that is
        `whole` is given entries as they are. Returns its number."""
        attached = self._deliveries.open_group(
            party=queue.party,
            owner=owner,
            state=queue.state,
            subscriptions=queue.subscriptions,
            mark=queue.mark,
            end_offset=end_offset,
            sent_before=sent_before,
            whole=whole,
        )
        self._attached[queue.party] = attached
        return attached

    def close(self, party: int) -> bytes:
        """A shared queue is not attached any more; returns its delivery state."""
        return self._deliveries.close_group(self._attached.pop(party))

    def detach(self, party: int) -> None:
        """The queue of a connection that has ended; the kernel knows (`Deliveries.detach`)."""
        del self._attached[party]

    def rest(self, party: int, state: bytes, now_us: int) -> None:
        """It rests in this state."""
        self._records.put_delivery_state(party_key(party), state, now_us)

    def end(self, party: int, now_us: int) -> None:
        """Removes what a queue has, attached or at rest."""
        if party in self._attached:
            self.close(party)
        key = party_key(party)
        self._records.put_delivery_state(key, DELIVERY_STATE_REMOVED, now_us)
        if self.is_there(party):
            self._records.put(Table.QUEUES, key, b"", now_us)

    def left(
        self, record: QueueRecord, expires_at_us: int | None, inquiry: Inquiry
    ) -> Pieces[Left]:
        """What is lost if a queue at rest ends. What came after its time was over was never for
        it."""
        end = self._log.durable_offset()
        if expires_at_us is not None:
            end = min(end, self._log.offset_at(expires_at_us))
        cut = yield from left_behind(inquiry, self.at_rest(record), end)
        return Left(record.party, cut)

    def backlog(self, record: QueueRecord, inquiry: Inquiry) -> Pieces[int]:
        """Messages of a queue that nobody has and nobody has had, and those that came back."""
        queue, end = self._attached.get(record.party), self._log.end_offset()
        if queue is None:
            return (yield from waiting(inquiry, self.at_rest(record), end)).count
        from_offset, returned = self._deliveries.backlog(queue)
        span = (record.reads, record.party, from_offset, end)
        return returned + (yield from inquiry.count(*span, rules=record.rules))

    def _is_as_before(self, record: QueueRecord, before: QueueAtRest) -> bool:
        state = self._log.delivery_state(record.party) or b""
        reads = (record.reads, record.rules)
        return state == before.state and reads == (before.subscriptions, before.rules)
