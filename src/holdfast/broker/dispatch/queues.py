"""Queues at rest: where they begin to read, and what is cut off when there is too much.

Owns: the limit of a queue at rest, applied when its session comes back. Never: lists messages; a
queue is implied by subscriptions and a mark, and its length is counted from the log's index.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.kernel import Log, state_mark, state_skip
from holdfast.protocols.mqtt.session import Session, Subscription


@dataclass(frozen=True, slots=True)
class QueueAtRest:
    """What an absent session left behind, and so what it has to get."""

    state: bytes
    """The kernel's delivery state; empty for a session that has none."""
    mark: int
    subscriptions: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a queue lost when it was cut to its limit."""

    first_offset: int
    end_offset: int
    count: int


def queue_at_rest(
    log: Log, session: Session, subscriptions: tuple[Subscription, ...]
) -> QueueAtRest:
    """The queue of a session that is not attached."""
    state = log.delivery_state(session.party) or b""
    mark = state_mark(state) if state else session.created_at_offset
    return QueueAtRest(state, mark, subscriptions)


def cut_to_limit(
    log: Log, party: int, queue: QueueAtRest, *, maximum: int, keep: Literal["newest", "oldest"]
) -> tuple[QueueAtRest, Cut | None]:
    """The queue with at most `maximum` messages, and what it lost."""
    end = log.end_offset()
    tables = [item.table() for item in queue.subscriptions]
    count = log.count(tables, party, queue.mark, end) if tables else 0
    if count <= maximum:
        return queue, None
    if keep == "newest":
        first = log.offset_of_newest(tables, party, queue.mark, maximum)
        cut = Cut(queue.mark, first, count - maximum)
        state = state_skip(queue.state, first) if queue.state else b""
        return QueueAtRest(state, first, queue.subscriptions), cut
    first = log.offset_of_newest(tables, party, queue.mark, count - maximum)
    cut = Cut(first, end, count - maximum)
    return replace(queue, subscriptions=tuple(_except(queue.subscriptions, first, end))), cut


def _except(subscriptions: Iterable[Subscription], first: int, end: int) -> Iterable[Subscription]:
    """The subscriptions without the offsets from `first` up to `end`."""
    for item in subscriptions:
        if item.from_offset < first:
            yield replace(item, until_offset=min(item.until_offset, first))
        if item.in_force:
            yield replace(item, from_offset=max(item.from_offset, end))
