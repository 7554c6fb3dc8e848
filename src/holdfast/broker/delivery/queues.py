"""Queues at rest: where they begin to read, and what is cut off when there is too much or it has
become too old.

Owns: the limits of a queue at rest, applied when its session comes back. Never: lists messages; a
queue is implied by subscriptions and a mark, and its length is counted from the log's index, in
pieces.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.losses import Losses
from holdfast.broker.delivery.owners import QueueOwner
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import NamedQueue, kept_from
from holdfast.broker.store.tables import party_key
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import Subscription
from holdfast.core.units import SECOND_US
from holdfast.kernel import Log, RangeSet, describe_state, new_state, state_mark, state_skip


@dataclass(frozen=True, slots=True)
class QueueAtRest:
    """What an absent session left behind, and so what it has to get."""

    state: bytes
    """The kernel's delivery state; empty for a session that has none."""
    mark: int
    subscriptions: tuple[Subscription, ...]

    def tables(self) -> list[dict[str, Any]]:
        """Its subscriptions as the kernel takes them."""
        return [item.table() for item in self.subscriptions]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a queue lost when it was cut to its limit."""

    ranges: list[tuple[int, int]]
    """Of offsets; within them everything that matched, less what was acknowledged."""
    count: int


@dataclass(frozen=True, slots=True)
class Left:
    """What is lost with a session that ends."""

    party: int
    cut: Cut | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The queue of a session that comes back, within its limits."""

    subscriptions: tuple[Subscription, ...]
    """Those of the session, when it was prepared."""
    before: QueueAtRest
    queue: QueueAtRest
    lost: tuple[tuple[LossReason, Cut], ...]
    """What it lost by that, with the reasons."""


_Kept = tuple[QueueAtRest, tuple[tuple[LossReason, Cut], ...]]
"""A queue within its limits, and what it lost by them, with the reasons."""


def queue_at_rest(
    log: Log, owner: QueueOwner, subscriptions: tuple[Subscription, ...]
) -> QueueAtRest:
    """The queue of a session that is not attached."""
    state = log.delivery_state(owner.party) or b""
    mark = state_mark(state) if state else owner.created_at_offset
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
        second = max(now_us // SECOND_US - ttl_s, 0)
        if self._known[0] != second:
            self._known = second, self._log.offset_at(second * SECOND_US)
        return self._known[1]


def cut_named(
    log: Log,
    inquiry: Inquiry,
    config: Config,
    owner: QueueOwner,
    queue: QueueAtRest,
    *,
    now_us: int,
) -> Pieces[_Kept]:
    """What a queue with a name has waiting, within the age and the bytes that it keeps."""
    named = NamedQueue(owner.party, queue.subscriptions, owner.created_at_offset)
    properties = config.application_queue_properties
    oldest = yield from kept_from(log, inquiry, named, properties, now_us)
    queue, gone = yield from cut_to_age(inquiry, owner.party, queue, oldest=oldest)
    return queue, (() if gone is None else ((LossReason.RETENTION, gone),))


def cut_device(
    log: Log,
    inquiry: Inquiry,
    config: Config,
    owner: QueueOwner,
    queue: QueueAtRest,
    *,
    oldest: int,
    now_us: int,
) -> Pieces[_Kept]:
    """What a device has waiting, within the age and the number that it may have; what lies below
    the offset `oldest` is too old."""
    party = owner.party
    queue, stale = yield from cut_to_age(inquiry, party, queue, oldest=oldest)
    queue, beyond = yield from cut_to_limit(
        *(inquiry, party, queue),
        maximum=config.queue_messages_maximum,
        keep=config.queue_keep,
        end=log.durable_offset(),
        now_us=now_us,
    )
    lost = ((LossReason.TTL, stale), (LossReason.OVERFLOW, beyond))
    return queue, tuple((reason, cut) for reason, cut in lost if cut is not None)


def cut_to_age(
    inquiry: Inquiry, party: int, queue: QueueAtRest, *, oldest: int
) -> Pieces[tuple[QueueAtRest, Cut | None]]:
    """The queue without messages below the offset `oldest`, and what it lost by that."""
    if oldest <= queue.mark or not queue.subscriptions:
        return queue, None
    lost = yield from waiting(inquiry, party, queue, oldest)
    if not lost.count:
        return queue, None
    return _skipped(queue, oldest), Cut(lost.ranges(queue.mark, oldest), lost.count)


def cut_to_limit(
    inquiry: Inquiry,
    party: int,
    queue: QueueAtRest,
    *,
    maximum: int,
    keep: Literal["newest", "oldest"],
    end: int,
    now_us: int,
) -> Pieces[tuple[QueueAtRest, Cut | None]]:
    """The queue with at most `maximum` messages before the offset `end` that have not expired, and
    what it lost. What is acknowledged above the mark is done already and counts for nothing; what
    is in flight stays."""
    tables = queue.tables()
    # The whole range is counted in one question; most queues are within their limit by that.
    count = yield from inquiry.count(tables, party, queue.mark, end)
    if count <= maximum:
        return queue, None
    found = yield from waiting(inquiry, party, queue, end, unexpired_at_us=now_us)
    flights = own_flights(queue.state)
    room = max(maximum - len(flights), 0)
    excess = found.count - room
    if excess <= 0:
        return queue, None
    if keep == "newest":
        first = yield from found.offset_of(inquiry, excess)
        lost = yield from waiting(inquiry, party, queue, first)
        return _skipped(queue, first), Cut(lost.ranges(queue.mark, first), lost.count)
    first = yield from found.offset_of(inquiry, room)
    first = max(first, max(flights, default=-1) + 1)
    lost = yield from waiting(inquiry, party, queue, end, begin=first)
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


def left_behind(
    log: Log, inquiry: Inquiry, owner: QueueOwner, queue: QueueAtRest
) -> Pieces[Cut | None]:
    """What is lost with a session that ends: all that its queue has, in flight or not. What came
    after its time was over was never for it."""
    party, end = owner.party, log.durable_offset()
    if owner.expires_at_us is not None:
        end = min(end, log.offset_at(owner.expires_at_us))
    if not queue.subscriptions or queue.mark >= end:
        return None
    found = yield from waiting(inquiry, party, queue, end)
    sent = [(offset, offset + 1) for offset in own_flights(queue.state, "published")]
    count = found.count + len(sent)
    return Cut([*found.ranges(queue.mark, end), *sent], count) if count else None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a queue at rest between two offsets."""

    party: int
    tables: list[dict[str, Any]]
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
        at_us = self.unexpired_at_us
        for start, stop, count in self.counts:
            if index < count:
                behind = yield from inquiry.count(
                    *(self.tables, self.party, stop, self.end), unexpired_at_us=at_us
                )
                newest = behind + count - index
                return (
                    yield from inquiry.newest(
                        *(self.tables, self.party, start, self.end, newest), unexpired_at_us=at_us
                    )
                )
            index -= count
        return self.end

    def ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Where it has messages between these offsets."""
        found = ((max(start, first), min(stop, end)) for start, stop, count in self.counts if count)
        return [(start, stop) for start, stop in found if start < stop]


def waiting(
    inquiry: Inquiry,
    party: int,
    queue: QueueAtRest,
    end: int,
    *,
    begin: int = 0,
    unexpired_at_us: int = 0,
) -> Pieces[Waiting]:
    """What waits in a queue at rest from its mark (or `begin`, where that is later) up to `end`:
    without what is acknowledged, and what is in flight. With a time, without what has expired by
    then."""
    tables, counts = queue.tables(), []
    for start, stop in _done(queue.state).gaps(max(queue.mark, begin), end):
        count = yield from inquiry.count(
            tables, party, start, stop, unexpired_at_us=unexpired_at_us
        )
        counts.append((start, stop, count))
    return Waiting(party, tables, end, unexpired_at_us, tuple(counts))


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
