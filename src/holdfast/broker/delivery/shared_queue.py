"""A queue that several may take from: a group's, or that of a loss that is driven again.

Owns: who takes from it, and that it is attached while somebody does, or has messages of it in
flight. Never: chooses who gets a message; the kernel does.
"""

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_at_rest import QueueAtRest
from holdfast.broker.delivery.queues import Prepared, Queues
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.subscription import Subscription


class SharedQueue:
    """One of them, attached or at rest."""

    def __init__(self, record: QueueRecord, queues: Queues, kernel: KernelStages) -> None:
        self.record = record
        self._queues = queues
        self._deliveries = kernel.deliveries
        self.queue: int | None = None
        """The kernel's, while it is attached."""
        self.sent_before = 0
        """What lies below, and is not acknowledged, may have been sent to somebody."""
        self.takers: dict[int, Subscription] = {}
        """Who takes from it on which terms, by connection."""
        self._prepared: Prepared | None = None
        """What it comes to when it is opened, if somebody who comes back has had it counted."""

    @property
    def party(self) -> int:
        """The number under which the log knows it."""
        return self.record.party

    def put(self, record: QueueRecord, now_us: int) -> None:
        """It has this record from now on."""
        self.record = record
        self._queues.put(record, now_us)

    def prepare(self, now_us: int) -> Pieces[None]:
        """Somebody who takes from it is about to be attached: what it has to lose is found out, if
        it is at rest."""
        if self.queue is not None:
            return
        self._prepared = yield from self._queues.prepare(self.record, now_us)

    def within_quota(self, now_us: int) -> QueueAtRest:
        """What it has waiting; what is beyond its quota is cut off."""
        prepared, self._prepared = self._prepared, None
        return self._queues.cut(self.record, self.record.owner, prepared, now_us)

    def open(self, queue: QueueAtRest, owner: int, end_offset: int) -> int:
        """Attaches it; what is lost of it is lost by `owner`. Returns the kernel's queue."""
        sent_before = end_offset if self.record.is_returned else self.sent_before
        whole = self.record.is_whole
        self.queue = self._queues.open(queue, owner, end_offset, sent_before, whole=whole)
        return self.queue

    def join(self, connection: int, terms: Subscription) -> None:
        """Whoever is on this connection takes from it from now on."""
        assert self.queue is not None, "nobody takes from a queue at rest"
        self._deliveries.join(
            self.queue,
            connection,
            qos=terms.qos,
            retain_as_published=terms.retain_as_published,
            identifier=terms.identifier,
        )
        self.takers[connection] = terms

    def leave(self, connection: int) -> bool:
        """It takes no more; what it has in flight it completes. False if it did not take."""
        if connection not in self.takers:
            return False
        assert self.queue is not None, "nobody takes from a queue at rest"
        self._deliveries.leave(self.queue, connection)
        del self.takers[connection]
        return True

    def in_flight(self) -> int:
        """Messages that somebody has and has not acknowledged."""
        return 0 if self.queue is None else self._deliveries.in_flight(self.queue)

    def mark(self) -> int:
        """Below which offset all of it is acknowledged."""
        return self._queues.mark(self.record)

    def may_rest(self) -> bool:
        """True if it is attached for nobody: none takes from it or has messages of it in flight."""
        return self.queue is not None and not self.takers and not self.in_flight()

    def rest(self, now_us: int) -> None:
        """It is not attached any more."""
        assert self.queue is not None, "only what is attached goes to rest"
        self.sent_before, _ = self._deliveries.backlog(self.queue)
        self.queue = None
        self._queues.rest(self.party, self._queues.close(self.party), now_us)

    def end(self, now_us: int) -> None:
        """It is gone, with all that it had."""
        self.queue = None
        self._queues.end(self.party, now_us)
