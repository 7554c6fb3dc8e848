"""Losses that are driven again: what was given up is delivered as new to those who lost it. And
what ended sessions have given back, to a group or to a bridge whose remote has forgotten it, which
is delivered in the same way.

Owns: a shared queue for each re-drive, beside the queue of the session or group that it stands in
for. Never: decides whether a loss may be driven again, or by whom.

Invariants:
1. A re-drive gives each of its messages at most once to whoever takes from it, on the terms of the
   subscription that matches; it goes on after a disconnect and after a restart where it stood.
2. It ends when all is acknowledged, and with the session or group that it stands in for.
3. What is lost of it is a loss of the session or group that it stands in for.
4. What was given back to a group is on record as long as a session has some of it that it has not
   received: where that session ends too, it is known whose it is.

To the kernel it is a group's queue with an end: members take from it beside whatever else they get.

Flow: admin -> here; sessions and groups tell who takes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.broker.chores import Pieces, at_once
from holdfast.broker.delivery.handed import handed_to
from holdfast.broker.delivery.losses import Losses, loss_of
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.delivery.shared_queue import SharedQueue
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import RETURNED, QueueRecord
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import Rules, Subscription
from holdfast.kernel import RangeSet

REDRIVES_MAXIMUM: Final = 1_000
"""Re-drives that are not over: each is a queue of a few hundred bytes, and a record that every
start reads."""
QOS_MAXIMUM: Final = 2
ONCE_MAXIMUM: Final = 10_000
"""Messages of a re-drive that go once although two subscriptions of different QoS match them: each
is a range in a record. What is beyond them comes by each, as the standard allows."""
LOOKS_MAXIMUM: Final = 100
"""Sessions that one sweep asks what they have of what was given back, in all: some 20 us each."""

Receive = Sequence[tuple[bytes, bool]] | None


@dataclass(frozen=True, slots=True)
class Target:
    """Whose losses are driven again."""

    party: int
    reads: tuple[Subscription, ...]
    """What it subscribes to now."""
    takers: dict[int, Subscription | None]
    """By connection, who takes from it now; on the terms of what it reads where that is `None`."""
    rules: Rules = ()

    def count(
        self, reads: Sequence[Subscription], begin: int, end: int, inquiry: Inquiry
    ) -> Pieces[int]:
        """How many messages these subscriptions of it have between two offsets."""
        return inquiry.count(reads, self.party, begin, end, rules=self.rules)


@dataclass(slots=True)
class _Given:
    """What was given back to a group, and is given out again."""

    redrive: SharedQueue
    holders: list[int] | None = None
    """Sessions that may have some of it which they have not received; `None` while nobody has asked
    who that can be."""


@dataclass(frozen=True, slots=True)
class FoundPart:
    """What subscriptions on equal terms match of what was lost."""

    reads: tuple[Subscription, ...]
    counted: tuple[tuple[int, int, int], ...]
    """First and end offset, and how many messages lie there; never none."""
    left_out: tuple[int, ...] = ()
    """Offsets of what comes by others already, which differ in having a higher QoS."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the log has of what was lost."""

    parts: tuple[FoundPart, ...]
    gone: list[tuple[int, int]]
    """Ranges of offsets that the log has no more."""
    whole_from: int
    """From this offset on the log was whole."""


class Redrives:
    """All re-drives that are not over."""

    def __init__(
        self, kernel: KernelStages, losses: Losses, parties: Parties, queues: Queues
    ) -> None:
        self._kernel = kernel
        self._log = kernel.log
        self._deliveries = kernel.deliveries
        self._losses = losses
        self._parties = parties
        self._queues = queues
        self._by_target: dict[int, list[SharedQueue]] = {}
        self._given: dict[int, _Given] = {}
        """What was given back to a group and is given out again, by party; those first that no
        sweep has looked at for longest."""

    def __len__(self) -> int:
        return sum(map(len, self._by_target.values()))

    def look(self, ranges: Iterable[tuple[int, int]], target: Target) -> Pieces[Found]:
        """What these ranges hold for the target."""
        asked = RangeSet(list(ranges))
        whole_from = self._log.whole_from()
        gone = [(first, min(end, whole_from)) for first, end in asked.ranges()]
        gone = [(first, end) for first, end in gone if first < end]
        asked.remove_below(whole_from)
        inquiry, parts = Inquiry(self._log), list[FoundPart]()
        for reads in _on_equal_terms(target.reads):
            better = [it for part in parts for it in part.reads if _is_better(it, reads[0])]
            counted, left_out = [], list[int]()
            for first, end in asked.ranges():
                count = yield from target.count(_again(reads), first, end, inquiry)
                if count and better:
                    most = ONCE_MAXIMUM - len(left_out)
                    twice = yield from _twice(inquiry, reads, better, target, (first, end), most)
                    left_out += twice
                    count -= len(twice)
                if count:
                    counted.append((first, end, count))
            if counted:
                parts.append(FoundPart(reads, tuple(counted), tuple(left_out)))
        return Found(tuple(parts), gone, whole_from)

    def begin(self, number: int, found: Found, target: Target, now_us: int) -> int | None:
        """Drives what was found for the target again; returns how many messages that are, without
        one nothing begins. `None`: some of it has gone since, and it is to be looked for again."""
        if found.whole_from != self._log.whole_from():
            return None
        return sum(self._begin_one(str(number), part, target, now_us) for part in found.parts)

    def give_back(self, target: Target, offsets: Iterable[int], now_us: int) -> bool:
        """A session has ended, and a group gets back what it had handed to it. False if there are
        too many already.

        A crash may leave this on record and the session too: then it is given back twice."""
        if len(self) >= REDRIVES_MAXIMUM:
            return False
        (reads,) = _on_equal_terms(target.reads)
        ranges = RangeSet([(offset, offset + 1) for offset in offsets]).ranges()
        counted = tuple((first, end, end - first) for first, end in ranges)
        self._begin_one(RETURNED, FoundPart(reads, counted), target, now_us)
        return True

    def take_back(self, name: str, target: Target, offsets: Iterable[int], now_us: int) -> None:
        """Re-drives had handed this to the target of this name, which has nothing of it any more:
        it is driven again; what cannot be is lost."""
        handed = RangeSet([(offset, offset + 1) for offset in offsets])
        is_room = len(self) < REDRIVES_MAXIMUM
        found = at_once(
            self.look(handed.ranges(), target if is_room else replace(target, reads=()))
        )
        for part in found.parts:
            self._begin_one(RETURNED, part, target, now_us)
        gone, there = RangeSet(found.gone), RangeSet(handed.ranges())
        there.remove_below(found.whole_from)
        missing = {(first, end): end - first for first, end in there.ranges()}
        for first, end, count in (each for part in found.parts for each in part.counted):
            missing[first, end] -= count
        rest = [span for span, count in missing.items() if count]
        # No subscription matches the rest any more.
        reason = LossReason.DENIED if is_room else LossReason.SESSION_ENDED
        for why, ranges, count in (
            (LossReason.RETENTION, gone.ranges(), gone.positions()),
            (reason, rest, sum(missing.values())),
        ):
            if count:
                self._losses.add(loss_of(name, target.party, why, ranges, count, now_us))
        self._losses.write_ahead(now_us)

    def join(self, target: int, connection: int, terms: Subscription | None) -> None:
        """Whoever is on this connection takes for the target from now on."""
        for redrive in self._by_target.get(target, ()):
            if redrive.party not in self._given:
                self._join(redrive, connection, terms)

    def leave(self, target: int, connection: int) -> None:
        """It takes no more; what it has in flight it completes."""
        for redrive in self._by_target.get(target, ()):
            redrive.leave(connection)

    def detach(self, connection: int, now_us: int) -> None:
        """The connection has ended, and the kernel knows (`Deliveries.detach`)."""
        for redrive in list(self._all()):
            if redrive.takers.pop(connection, None) is not None:
                self._rest(redrive, now_us)

    def grant(self, target: int, receive: Receive) -> None:
        """What the target may receive of it from now on."""
        for redrive in self._by_target.get(target, ()):
            if redrive.queue is not None:
                self._deliveries.grant(redrive.queue, receive)

    def end(self, target: int, now_us: int) -> None:
        """The session or group is gone, and with it all that it would still have got."""
        for redrive in self._by_target.pop(target, ()):
            self._remove(redrive, now_us)

    def recover(
        self, queues: Iterable[QueueRecord], is_known: Callable[[int], bool], now_us: int
    ) -> None:
        """Finds the re-drives among these queues on record; `is_known` tells whether there still is
        a session or group."""
        for record in queues:
            if record.kind == "redrive":
                redrive = self._add(record)
                if record.is_returned and _is_over(redrive):
                    self._given[record.party] = _Given(redrive)
                if not is_known(record.target):
                    self.end(record.target, now_us)

    def sweep(self, subscribers_of: Callable[[int], Iterable[int]], now_us: int) -> None:
        """Ends those of which everything is acknowledged; `subscribers_of` tells the sessions of a
        group."""
        for redrive in list(self._all()):
            # One at rest has been looked at when it went there.
            if redrive.queue is not None and _is_over(redrive):
                self._over(redrive, now_us)
            else:
                self._rest(redrive, now_us)
        self._end_given(subscribers_of, now_us)

    def _all(self) -> Iterator[SharedQueue]:
        for redrives in self._by_target.values():
            yield from redrives

    def _end_given(self, subscribers_of: Callable[[int], Iterable[int]], now_us: int) -> None:
        """Ends those of which no session has anything any more that it has not received."""
        looks = LOOKS_MAXIMUM
        for party in list(self._given):
            given = self._given[party] = self._given.pop(party)
            if given.holders is None:
                given.holders = list(subscribers_of(given.redrive.record.target))
            while looks and given.holders and not self._has(given.holders[-1], party):
                given.holders.pop()
                looks -= 1
            if not given.holders:
                self._finish(given.redrive, now_us)
            looks = max(looks - 1, 0)
            if not looks:
                break

    def _has(self, session: int, party: int) -> bool:
        return any(handed.group == party for handed in handed_to(self._log, session))

    def _begin_one(self, owner: str, one: FoundPart, target: Target, now_us: int) -> int:
        ranges = [(first, end) for first, end, _ in one.counted]
        begin, end = ranges[0][0], ranges[-1][1]
        record = QueueRecord(
            party=self._parties.durable(now_us),
            kind="redrive",
            owner=owner,
            created_at_offset=begin,
            reads=tuple(item._replace(from_offset=begin, until_offset=end) for item in one.reads),
            target=target.party,
            end_offset=end,
        )
        done = RangeSet(ranges).gaps(begin, end)
        done += [(offset, offset + 1) for offset in one.left_out if begin <= offset < end]
        self._queues.begin(record.party, begin, done, now_us)
        self._queues.put(record, now_us)
        redrive = self._add(record)
        for connection, terms in target.takers.items():
            self._join(redrive, connection, terms)
        return sum(count for _, _, count in one.counted)

    def _add(self, record: QueueRecord) -> SharedQueue:
        redrive = SharedQueue(record, self._queues, self._kernel)
        self._by_target.setdefault(record.target, []).append(redrive)
        self._losses.stand_ins[record.party] = record.target
        return redrive

    def _join(self, redrive: SharedQueue, connection: int, terms: Subscription | None) -> None:
        record = redrive.record
        if redrive.queue is None:
            queue = replace(self._queues.at_rest(record), subscriptions=_again(record.reads))
            redrive.open(queue, record.target, record.end_offset)
        own = record.reads[0]
        least = own if terms is None else terms._replace(qos=min(terms.qos, own.qos))
        redrive.join(connection, least)

    def _rest(self, redrive: SharedQueue, now_us: int) -> None:
        """Nobody takes from it: it rests, once nobody has messages of it in flight."""
        if redrive.may_rest():
            redrive.rest(now_us)
            if _is_over(redrive):
                self._over(redrive, now_us)

    def _over(self, redrive: SharedQueue, now_us: int) -> None:
        """All of it is acknowledged, or handed to a session."""
        if not redrive.record.is_returned:
            self._finish(redrive, now_us)
            return
        self._given[redrive.party] = _Given(redrive)
        if redrive.queue is not None:
            # It would have its part of its takers' windows.
            redrive.takers.clear()
            redrive.rest(now_us)

    def _finish(self, redrive: SharedQueue, now_us: int) -> None:
        others = self._by_target[redrive.record.target]
        others.remove(redrive)
        if not others:
            del self._by_target[redrive.record.target]
        self._remove(redrive, now_us)

    def _remove(self, redrive: SharedQueue, now_us: int) -> None:
        self._losses.stand_ins.pop(redrive.party, None)
        self._given.pop(redrive.party, None)
        redrive.end(now_us)


def _again(reads: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """The same, as what is driven again waits for them: whatever the terms are on which it goes."""
    return tuple(it._replace(qos=QOS_MAXIMUM, retain_as_published=True) for it in reads)


def _is_over(redrive: SharedQueue) -> bool:
    return redrive.mark() >= redrive.record.end_offset


def _is_better(one: Subscription, other: Subscription) -> bool:
    """True if who is sent what one matches need not be sent it by the other, too: nothing but the
    QoS tells them apart."""
    same = other.retain_as_published, other.identifier
    return (one.retain_as_published, one.identifier) == same and one.qos > other.qos


def _twice(
    inquiry: Inquiry,
    reads: tuple[Subscription, ...],
    better: list[Subscription],
    target: Target,
    span: tuple[int, int],
    most: int,
) -> Pieces[list[int]]:
    """The offsets of messages of a range that both match, `most` at most. What several
    subscriptions of equal terms match comes once; by others it comes by each, which the standard
    allows [MQTT 5 section 3.3.4]."""
    first, end = span
    own, others = _again(reads), _again(better)
    count = -(yield from target.count([*own, *others], first, end, inquiry))
    for each in (own, others):
        count += yield from target.count(each, first, end, inquiry)
    found = list[int]()
    while len(found) < min(count, most) and first < end:
        rules = target.rules
        offset = yield from inquiry.first(others, target.party, first, end, rules=rules)
        if (yield from target.count(own, offset, offset + 1, inquiry)):
            found.append(offset)
        first = offset + 1
    return found


def _on_equal_terms(reads: Iterable[Subscription]) -> list[tuple[Subscription, ...]]:
    """The subscriptions in force, those together that deliver on the same terms: a queue that is
    taken from has one set of terms for each who takes. Those with the highest QoS first."""
    alike: dict[tuple[int, bool, int | None], list[Subscription]] = {}
    for item in sorted(reads, key=lambda item: -item.qos):
        if item.in_force:
            terms = (item.qos, item.retain_as_published, item.identifier)
            # Whatever it has lost it was owed: also before the subscription was renewed.
            alike.setdefault(terms, []).append(item._replace(from_offset=0))
    return [tuple(items) for items in alike.values()]
