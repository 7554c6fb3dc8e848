"""Queues as they are seen from outside: attached ones by their handles, those at rest by their
owners, and those with names."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_at_rest import QueueAtRest
from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.mqtt.packs import Packs
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom, QueueSpan
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.config import Config
from holdfast.core.quota import Quota, quota_of
from holdfast.core.subscription import Subscription
from holdfast.kernel import describe_state

OWN = 0
"""In place of a group's party: the client's own queue."""


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A queue from which somebody takes."""

    mark: int
    """Everything below it is acknowledged."""
    in_flight: int


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A group's or a subscription's queue, from which somebody takes."""

    name: str
    """What its owner is called."""
    party: int
    queue: int
    reads: tuple[Subscription, ...]
    takers: tuple[int, ...]
    """Connections of those who take from it."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What a queue from which somebody takes has still to read."""

    from_offset: int
    returned: int
    """Messages before that which wait to be given out again."""


@dataclass(frozen=True, slots=True)
class PackSeen:
    """What a queue has given since its last commit."""

    first_offset: int | None
    """`None` if it has given nothing."""
    messages: int
    unacknowledged: int
    rounds: int
    """How often it was overdue."""


class QueuesState:
    """Looks at one queue at a time."""

    def __init__(
        self,
        kernel: KernelStages,
        queues: Queues,
        packs: Packs,
        names: QueueNames,
        config: Callable[[], Config],
        now_us: Callable[[], int],
    ) -> None:
        self._deliveries = kernel.deliveries
        self._queues = queues
        self._packs = packs
        self._names = names
        self._config = config
        self._now_us = now_us
        self._kept = KeptFrom(kernel.log)

    def of_sessions(self) -> list[tuple[int, int, int]]:
        """Party, queue and connection of each session from whose own queue somebody takes."""
        return self._deliveries.queues()

    def of(self, queue: int) -> QueueSeen:
        """A queue from which somebody takes."""
        return QueueSeen(self._deliveries.mark(queue), self._deliveries.in_flight(queue))

    def unread(self, queue: int) -> Unread:
        """What it has still to read."""
        return Unread(*self._deliveries.backlog(queue))

    def pack(self, connection: int, party: int = OWN) -> PackSeen | None:
        """The pack that a connection has of a group, or of its session's own queue; `None` for a
        session without packs."""
        pack = self._deliveries.pack(connection, party)
        if pack is None:
            return None
        return PackSeen(
            first_offset=pack["first_offset"],
            messages=pack["taken"],
            unacknowledged=pack["pending"],
            rounds=self._packs.rounds(connection, party),
        )

    def at_rest(self, record: QueueRecord) -> QueueAtRest:
        """A queue from which nobody takes."""
        return self._queues.at_rest(record)

    def quota(self, record: QueueRecord) -> Quota:
        """What it may have."""
        return self._queues.quota(record)

    def oldest_kept(self, quota: Quota) -> int:
        """The offset of the oldest message that a queue at rest may still give by its age; 0: of
        any age."""
        return 0 if quota.step_bytes else self._kept.by_age(quota, self._now_us())

    def cursor_quota(self) -> Quota:
        """What a cursor may have that it has not released."""
        return quota_of(self._config(), "cursor", named=True)

    def kept_from(self, inquiry: Inquiry, span: QueueSpan) -> Pieces[int]:
        """The first offset that a queue with a name keeps."""
        quota = quota_of(self._config(), "client", named=True)
        return self._kept.offset(inquiry, span, quota, self._now_us())

    def owner(self, queue_name: str) -> Owner | None:
        """Whose queue has this name."""
        return self._names.owner(queue_name)

    def named_after(self, queue_name: str, limit: int) -> list[tuple[str, Owner]]:
        """The first names after one, in their order, with whose queues have them."""
        return self._names.page(queue_name, limit)


def in_flight_at_rest(queue: QueueAtRest) -> int:
    """How many messages are in flight of a queue at rest, and will be sent again first."""
    return len(describe_state(queue.state)["in_flight"]) if queue.state else 0
