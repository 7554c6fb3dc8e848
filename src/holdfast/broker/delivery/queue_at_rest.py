"""A queue at rest as a value: where it begins to read, and what is cut off when there is too much
or it has become too old.

Owns: how a queue at rest is cut to its quota, and what it leaves behind. Never: changes anything,
or lists messages; a queue is implied by subscriptions and a mark, and its length is counted from
the log's index, in pieces.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.broker.chores import Pieces
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom, QueueSpan
from holdfast.core.loss_reason import LossReason
from holdfast.core.quota import Quota
from holdfast.core.subscription import Rules, Subscription, without_past
from holdfast.kernel import Log, RangeSet, describe_state, state_mark, state_skip


@dataclass(frozen=True, slots=True)
class QueueAtRest:
    """What whoever took from it left behind, and so what there is to get."""

    party: int
    created_at_offset: int
    """Where it begins to read as long as it has no delivery state."""
    state: bytes
    """The kernel's delivery state; empty for one that has none."""
    mark: int
    subscriptions: tuple[Subscription, ...]
    rules: Rules = ()

    def span(self) -> QueueSpan:
        """What it is made of."""
        return QueueSpan(self.party, self.subscriptions, self.created_at_offset)


@dataclass(frozen=True, slots=True)
class Cut:
    """What a queue lost when it was cut to its limit."""

    ranges: list[tuple[int, int]]
    """Of offsets; within them everything that waited, less what was acknowledged."""
    count: int


Within = tuple[QueueAtRest, tuple[tuple[LossReason, Cut], ...]]
"""A queue within its quota, and what it lost by that, with the reasons."""


def queue_at_rest(
    log: Log,
    party: int,
    created_at_offset: int,
    reads: tuple[Subscription, ...],
    rules: Rules = (),
) -> QueueAtRest:
    """A queue that is not attached."""
    state = log.delivery_state(party) or b""
    mark = state_mark(state) if state else created_at_offset
    return QueueAtRest(party, created_at_offset, state, mark, reads, rules)


def cut_to_quota(
    kept: KeptFrom, inquiry: Inquiry, queue: QueueAtRest, quota: Quota, *, end: int, now_us: int
) -> Pieces[Within]:
    """What a queue has waiting before the offset `end`, within its quota."""
    oldest = yield from kept.offset(inquiry, queue.span(), quota, now_us)
    young, aged = yield from cut_to_age(inquiry, queue, oldest=oldest)
    found, beyond = yield from cut_to_limit(inquiry, young, quota, end=end, now_us=now_us)
    lost = ((quota.age_reason, aged), (LossReason.OVERFLOW, beyond))
    return found, tuple((reason, cut) for reason, cut in lost if cut is not None)


def cut_to_age(
    inquiry: Inquiry, queue: QueueAtRest, *, oldest: int
) -> Pieces[tuple[QueueAtRest, Cut | None]]:
    """The queue without messages below the offset `oldest`, and what it lost by that."""
    if oldest <= queue.mark or not queue.subscriptions:
        return queue, None
    lost = yield from waiting(inquiry, queue, oldest)
    if not lost.count:
        return queue, None
    return skipped(queue, oldest), Cut(lost.ranges(queue.mark, oldest), lost.count)


def cut_to_limit(
    inquiry: Inquiry, queue: QueueAtRest, quota: Quota, *, end: int, now_us: int
) -> Pieces[tuple[QueueAtRest, Cut | None]]:
    """The queue with at most as many messages before the offset `end` that have not expired as it
    may have, and what it lost. What is acknowledged above the mark is done already and counts for
    nothing; what is in flight stays."""
    if quota.messages is None:
        return queue, None
    # The whole range is counted in one question; most queues are within their limit by that.
    count = yield from inquiry.count(
        queue.subscriptions, queue.party, queue.mark, end, rules=queue.rules
    )
    if count <= quota.messages:
        return queue, None
    found = yield from waiting(inquiry, queue, end, unexpired_at_us=now_us)
    flights = own_flights(queue.state)
    room = max(quota.messages - len(flights), 0)
    excess = found.count - room
    if excess <= 0:
        return queue, None
    if quota.keep == "newest":
        first = yield from found.offset_of(inquiry, excess)
        lost = yield from waiting(inquiry, queue, first)
        return skipped(queue, first), Cut(lost.ranges(queue.mark, first), lost.count)
    first = yield from found.offset_of(inquiry, room)
    first = max(first, max(flights, default=-1) + 1)
    lost = yield from waiting(inquiry, queue, end, begin=first)
    kept = tuple(_except(without_past(queue.subscriptions, queue.mark), first, end))
    return replace(queue, subscriptions=kept), Cut(lost.ranges(first, end), lost.count)


def left_behind(inquiry: Inquiry, queue: QueueAtRest, end: int) -> Pieces[Cut | None]:
    """What is lost with a queue that ends: all that it has before the offset `end`, in flight or
    not."""
    if not queue.subscriptions or queue.mark >= end:
        return None
    found = yield from waiting(inquiry, queue, end)
    sent = [(offset, offset + 1) for offset in own_flights(queue.state, "published")]
    count = found.count + len(sent)
    return Cut([*found.ranges(queue.mark, end), *sent], count) if count else None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a queue at rest between two offsets."""

    queue: QueueAtRest
    end: int
    unexpired_at_us: int
    counts: tuple[tuple[int, int, int], ...]
    """First and end offset of each gap between what is done, and how many messages it has."""

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(count for _, _, count in self.counts)

    def offset_of(self, inquiry: Inquiry, index: int) -> Pieces[int]:
        """The offset of the message that has `index` others before it."""
        at_us, end, rules = self.unexpired_at_us, self.end, self.queue.rules
        span = (self.queue.subscriptions, self.queue.party)
        for start, stop, count in self.counts:
            if index < count:
                behind = yield from inquiry.count(
                    *span, stop, end, rules=rules, unexpired_at_us=at_us
                )
                left = behind + count - index
                return (
                    yield from inquiry.newest(
                        *span, start, end, left, rules=rules, unexpired_at_us=at_us
                    )
                )
            index -= count
        return self.end

    def ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Where it has messages between these offsets."""
        found = ((max(start, first), min(stop, end)) for start, stop, count in self.counts if count)
        return [(start, stop) for start, stop in found if start < stop]


def waiting(
    inquiry: Inquiry, queue: QueueAtRest, end: int, *, begin: int = 0, unexpired_at_us: int = 0
) -> Pieces[Backlog]:
    """What waits in a queue at rest from its mark (or `begin`, where that is later) up to `end`:
    without what is acknowledged, and what is in flight. With a time, without what has expired by
    then."""
    counts = []
    for start, stop in _done(queue.state).gaps(max(queue.mark, begin), end):
        count = yield from inquiry.count(
            queue.subscriptions,
            queue.party,
            start,
            stop,
            rules=queue.rules,
            unexpired_at_us=unexpired_at_us,
        )
        counts.append((start, stop, count))
    return Backlog(queue, end, unexpired_at_us, tuple(counts))


def own_flights(state: bytes, phase: Literal["published", "received"] | None = None) -> list[int]:
    """The offsets of what is in flight of the queue itself, in this phase or any, and is sent again
    first of all: no limit takes it away [MQTT-4.4.0-1]."""
    in_flight = describe_state(state)["in_flight"] if state else ()
    own = (flight for flight in in_flight if "group" not in flight)
    return [flight["offset"] for flight in own if phase in (None, flight["phase"])]


def _done(state: bytes) -> RangeSet:
    done = RangeSet(describe_state(state)["acknowledged"] if state else [])
    for offset in own_flights(state):
        done.insert(offset, offset + 1)
    return done


def skipped(queue: QueueAtRest, mark: int) -> QueueAtRest:
    """The queue without what waits below this offset."""
    if not queue.state:
        return replace(queue, mark=mark)
    state = state_skip(queue.state, mark)
    return replace(queue, state=state, mark=state_mark(state))


def _except(subscriptions: Iterable[Subscription], first: int, end: int) -> Iterable[Subscription]:
    """The subscriptions without the offsets from `first` up to `end`."""
    for item in subscriptions:
        if item.from_offset < first:
            yield item._replace(until_offset=min(item.until_offset, first))
        if item.in_force:
            yield item._replace(from_offset=max(item.from_offset, end))
