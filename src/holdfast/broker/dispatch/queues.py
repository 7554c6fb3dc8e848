"""Queues at rest: where they begin to read, and what is cut off when there is too much.

Owns: the limit of a queue at rest, applied when its session comes back. Never: lists messages; a
queue is implied by subscriptions and a mark, and its length is counted from the log's index.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.kernel import Log, RangeSet, describe_state, state_mark, state_skip
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
    """The queue with at most `maximum` messages, and what it lost. What is acknowledged above the
    mark counts as the done work that it is."""
    end = log.durable_offset()
    tables = [item.table() for item in queue.subscriptions]
    # The whole range is counted in one question; most queues are within their limit by that.
    if not tables or log.count(tables, party, queue.mark, end) <= maximum:
        return queue, None
    waiting = _Waiting(log, tables, party, queue, end)
    excess = waiting.count - maximum
    if excess <= 0:
        return queue, None
    if keep == "newest":
        first = waiting.offset_of(excess)
        cut = Cut(queue.mark, first, excess)
        state = state_skip(queue.state, first) if queue.state else b""
        return QueueAtRest(state, first, queue.subscriptions), cut
    first = waiting.offset_of(maximum)
    cut = Cut(first, end, excess)
    return replace(queue, subscriptions=tuple(_except(queue.subscriptions, first, end))), cut


class _Waiting:
    """What a queue still has to get, between what is acknowledged above its mark."""

    def __init__(
        self, log: Log, tables: list[dict[str, Any]], party: int, queue: QueueAtRest, end: int
    ) -> None:
        self._log = log
        self._tables = tables
        self._party = party
        self._end = end
        done = describe_state(queue.state)["acknowledged"] if queue.state else []
        gaps = RangeSet(done).gaps(queue.mark, end)
        self._counts = [(start, stop, self._count(start, stop)) for start, stop in gaps]
        self.count = sum(count for _, _, count in self._counts)

    def offset_of(self, index: int) -> int:
        """The offset of the message that has `index` others before it."""
        for start, stop, count in self._counts:
            if index < count:
                behind = self._count(stop, self._end)
                newest = behind + count - index
                return self._log.offset_of_newest(self._tables, self._party, start, newest)
            index -= count
        return self._end

    def _count(self, start: int, stop: int) -> int:
        return self._log.count(self._tables, self._party, start, stop) if start < stop else 0


def _except(subscriptions: Iterable[Subscription], first: int, end: int) -> Iterable[Subscription]:
    """The subscriptions without the offsets from `first` up to `end`."""
    for item in subscriptions:
        if item.from_offset < first:
            yield replace(item, until_offset=min(item.until_offset, first))
        if item.in_force:
            yield replace(item, from_offset=max(item.from_offset, end))
