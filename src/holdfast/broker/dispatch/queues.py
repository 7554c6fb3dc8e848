"""Queues at rest: where they begin to read, and what is cut off when there is too much or it has
become too old.

Owns: the limits of a queue at rest, applied when its session comes back. Never: lists messages; a
queue is implied by subscriptions and a mark, and its length is counted from the log's index.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.broker.dispatch.losses import Losses
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import party_key
from holdfast.kernel import Log, RangeSet, describe_state, new_state, state_mark, state_skip
from holdfast.protocols.mqtt.session import MICROSECONDS, Session, Subscription


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

    ranges: list[tuple[int, int]]
    """Of offsets; within them everything that matched, less what was acknowledged."""
    count: int


def queue_at_rest(
    log: Log, session: Session, subscriptions: tuple[Subscription, ...]
) -> QueueAtRest:
    """The queue of a session that is not attached."""
    state = log.delivery_state(session.party) or b""
    mark = state_mark(state) if state else session.created_at_offset
    return QueueAtRest(state, mark, subscriptions)


class OldestKept:
    """Where the log begins to be young enough for queues at rest. It is looked up once in a second:
    a fleet that comes back would ask thousands of times."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known = (0, 0)
        """A second, and the offset that was found in it."""

    def offset(self, ttl_s: int, now_us: int) -> int:
        """The offset of the oldest message that an absent session may still get; 0: of any age."""
        if ttl_s == 0:
            return 0
        second = max(now_us // MICROSECONDS - ttl_s, 0)
        if self._known[0] != second:
            self._known = second, self._log.offset_at(second * MICROSECONDS)
        return self._known[1]


def cut_to_age(
    log: Log, party: int, queue: QueueAtRest, *, oldest: int
) -> tuple[QueueAtRest, Cut | None]:
    """The queue without messages below the offset `oldest`, and what it lost by that."""
    tables = [item.table() for item in queue.subscriptions]
    if oldest <= queue.mark or not tables:
        return queue, None
    lost = Waiting(log, party, queue, oldest)
    if not lost.count:
        return queue, None
    return _skipped(queue, oldest), Cut(lost.ranges(queue.mark, oldest), lost.count)


def cut_to_limit(
    log: Log,
    party: int,
    queue: QueueAtRest,
    *,
    maximum: int,
    keep: Literal["newest", "oldest"],
    now_us: int,
) -> tuple[QueueAtRest, Cut | None]:
    """The queue with at most `maximum` messages that have not expired, and what it lost. What is
    acknowledged above the mark counts as the done work that it is; what is in flight stays."""
    end = log.durable_offset()
    tables = [item.table() for item in queue.subscriptions]
    # The whole range is counted in one question; most queues are within their limit by that.
    if not tables or log.count(tables, party, queue.mark, end) <= maximum:
        return queue, None
    waiting = Waiting(log, party, queue, end, unexpired_at_us=now_us)
    flights = own_flights(queue.state)
    room = max(maximum - len(flights), 0)
    excess = waiting.count - room
    if excess <= 0:
        return queue, None
    if keep == "newest":
        first = waiting.offset_of(excess)
        lost = Waiting(log, party, queue, first)
        return _skipped(queue, first), Cut(lost.ranges(queue.mark, first), lost.count)
    first = max(waiting.offset_of(room), max(flights, default=-1) + 1)
    lost = Waiting(log, party, queue, end, begin=first)
    kept = tuple(_except(queue.subscriptions, first, end))
    return replace(queue, subscriptions=kept), Cut(lost.ranges(first, end), lost.count)


def put_cut(
    records: ControlRecords, losses: Losses, party: int, kept: QueueAtRest, now_us: int
) -> None:
    """What was cut is on record as lost and then as done, before anybody can hear of the queue: a
    crash does not count it again. Where the loss has to wait for its row, so does this: counted
    twice is better than never."""
    if losses.write_ahead(now_us):
        state = kept.state or new_state(kept.mark)
        records.put_delivery_state(party_key(party), state, now_us)


def left_behind(log: Log, session: Session, queue: QueueAtRest, now_us: int) -> Cut | None:
    """What is lost with a session that ends: all that its queue has, in flight or not. What came
    after its time was over was never for it."""
    party, end = session.party, log.durable_offset()
    if session.expires_at_us is not None and session.expired(now_us):
        end = log.offset_at(session.expires_at_us)
    if not queue.subscriptions or queue.mark >= end:
        return None
    waiting = Waiting(log, party, queue, end)
    sent = [(offset, offset + 1) for offset in own_flights(queue.state, "published")]
    count = waiting.count + len(sent)
    return Cut([*waiting.ranges(queue.mark, end), *sent], count) if count else None


class Waiting:
    """What waits in a queue at rest between two offsets, its mark and `end`: without what is
    acknowledged, and what is in flight. With a time, without what has expired by then."""

    def __init__(
        self,
        log: Log,
        party: int,
        queue: QueueAtRest,
        end: int,
        *,
        begin: int = 0,
        unexpired_at_us: int = 0,
    ) -> None:
        self._log = log
        self._tables = [item.table() for item in queue.subscriptions]
        self._party = party
        self._end = end
        self._unexpired_at_us = unexpired_at_us
        gaps = _done(queue.state).gaps(max(queue.mark, begin), end)
        self._counts = [(start, stop, self._count(start, stop)) for start, stop in gaps]
        self.count = sum(count for _, _, count in self._counts)

    def offset_of(self, index: int) -> int:
        """The offset of the message that has `index` others before it."""
        for start, stop, count in self._counts:
            if index < count:
                behind = self._count(stop, self._end)
                newest = behind + count - index
                return self._log.offset_of_newest(
                    *(self._tables, self._party, start, newest),
                    unexpired_at_us=self._unexpired_at_us,
                )
            index -= count
        return self._end

    def ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Where it has messages between these offsets."""
        found = (
            (max(start, first), min(stop, end)) for start, stop, count in self._counts if count
        )
        return [(start, stop) for start, stop in found if start < stop]

    def _count(self, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        return self._log.count(
            *(self._tables, self._party, start, stop), unexpired_at_us=self._unexpired_at_us
        )


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


def _skipped(queue: QueueAtRest, mark: int) -> QueueAtRest:
    """The queue without what waits below this offset."""
    if not queue.state:
        return QueueAtRest(b"", mark, queue.subscriptions)
    state = state_skip(queue.state, mark)
    return QueueAtRest(state, state_mark(state), queue.subscriptions)


def _except(subscriptions: Iterable[Subscription], first: int, end: int) -> Iterable[Subscription]:
    """The subscriptions without the offsets from `first` up to `end`."""
    for item in subscriptions:
        if item.from_offset < first:
            yield replace(item, until_offset=min(item.until_offset, first))
        if item.in_force:
            yield replace(item, from_offset=max(item.from_offset, end))
