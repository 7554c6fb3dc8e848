"""A look at attached queues, some of them every second: backlog, what is in flight, who is stuck.

Owns: totals over all queues as of the last complete round, the longest queues, and the watchdog: a
client that is connected and takes bytes, has a backlog, and was sent nothing for STUCK_AFTER_S.
Never: does anything about it; it tells, in the log and in the metrics.

Invariant: one look is done in pieces, and the next one begins no sooner than it is over.
"""

import heapq
import logging
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from holdfast.broker.chores import Pieces
from holdfast.broker.state.broker import Broker
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription, own_of
from holdfast.core.units import SECOND_US
from holdfast.kernel import GROUP_CONNECTION

log = logging.getLogger(__name__)

QUEUES_PER_LOOK = 2_000
"""Asking for a mark and what is in flight takes less than a microsecond; 20 000 queues are seen in
ten seconds."""
COUNTS_PER_LOOK = 100
"""A backlog is counted from the log's index, which mostly takes some microseconds."""
BUSIEST_MAXIMUM = 100
"""The longest queues that are remembered; a terminal has fewer lines."""
STUCK_AFTER_S = 30
"""As long as an acknowledgement may reasonably take on a bad radio link."""
QUIET_AFTER_S = 10
"""So long after the last refusal the log is said to take messages again."""


class Stuck(StrEnum):
    """Why nothing moves in a queue that has something for a client who takes bytes."""

    STALLED = "stalled"
    """The client could be sent more."""
    UNACKNOWLEDGED = "unacknowledged"
    """It has as much in flight as it allows, or has asked for nothing."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A queue with messages that its client has not acknowledged."""

    client_identifier: str
    messages: int
    """Matching messages from the mark on: waiting and in flight."""
    in_flight: int
    mark: int
    unchanged_since_us: int
    stuck: Stuck | None
    """Why nothing moves, if nothing does."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A queue that is looked at."""

    name: str
    party: int
    queue: int
    reads: tuple[Subscription, ...]
    takers: tuple[int, ...]
    """Connections that it is delivered to."""
    in_flight_maximum: int
    """With so many in flight nothing can be sent before something is acknowledged."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of it."""

    messages: int
    in_flight: int
    mark: int
    has_unsent: bool
    """Some of the messages are not in flight."""


class Watch:
    """Sees to all queues in turn."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.log
        self._queues = broker.queues
        self._sessions = broker.sessions
        self._groups = broker.groups
        self._subscriptions = broker.subscriptions
        self._connections = broker.connections
        self._log_full = broker.log_full
        self._chores = broker.chores
        self._is_looking = False
        self._unseen: list[tuple[int, int, int]] = []
        self._behind: dict[int, Behind] = {}
        self._found: dict[int, Behind] = {}
        self._found_in_flight = 0
        self._refused = 0
        self._refused_at_us: int | None = None
        self.queues_behind = 0
        self.backlog_messages = 0
        self.in_flight_messages = 0
        self.stuck: Counter[Stuck] = Counter()
        self.busiest: tuple[Behind, ...] = ()
        self.round_ended_at_us: int | None = None
        """When the round ended that all of this is as of."""

    def look(self, now_us: int) -> None:
        """A second has passed: one look, unless the last one is still under way."""
        self._see_refusals(now_us)
        if not self._is_looking:
            self._is_looking = True
            self._chores.begin(self._look(now_us), self._end_look)

    def _look(self, now_us: int) -> Pieces[None]:
        inquiry, counted = self._log.inquire(), 0
        for _ in range(QUEUES_PER_LOOK):
            if not self._unseen:
                break
            counted += yield from self._see(inquiry, *self._unseen.pop(), now_us)
            if counted >= COUNTS_PER_LOOK:
                return
            yield from inquiry.rest()
        if not self._unseen:
            self._end_round(now_us)

    def _end_look(self, _outcome: None) -> None:
        self._is_looking = False

    def stuck_of(self, party: int) -> Stuck | None:
        """Why nothing moves in the queue of this session or group, as of the last round; `None` if
        it moves, or has nothing to move."""
        behind = self._behind.get(party)
        return None if behind is None else behind.stuck

    def _see(
        self, inquiry: Inquiry, party: int, queue: int, connection: int, now_us: int
    ) -> Pieces[int]:
        """Looks at one queue; returns how often it counted messages."""
        if not self._is_open(party, queue, connection):
            return 0
        state = self._queues.of(queue)
        mark, in_flight = state.mark, state.in_flight
        self._found_in_flight += in_flight
        # Most queues have nothing to tell, and what they are is not asked.
        if mark >= self._log.durable_offset():
            return 0
        seen = self._shared(party) if connection == GROUP_CONNECTION else self._own(connection)
        if seen is None or not seen.reads:
            return 0
        messages = yield from self._count(inquiry, seen, mark)
        if messages and self._is_open(party, queue, connection):
            unread = self._queues.unread(queue)
            unsent = unread.returned or (yield from self._count(inquiry, seen, unread.from_offset))
            found = _Found(messages, in_flight, mark, bool(unsent))
            self._found[seen.party] = self._judge(seen, found, now_us)
        return 1

    def _is_open(self, party: int, queue: int, connection: int) -> bool:
        """False if it has gone since the round began."""
        if connection == GROUP_CONNECTION:
            shared = self._groups.queue_of(party), self._subscriptions.queue_of(party)
            return queue in shared
        return self._sessions.queue_on(connection) == queue

    def _own(self, connection: int) -> _Seen | None:
        attached = self._sessions.on(connection)
        if attached is None or attached.queue is None:
            return None
        return _Seen(
            attached.session.client_identifier,
            attached.session.party,
            attached.queue,
            own_of(attached.subscriptions),
            (connection,),
            attached.receive_maximum,
        )

    def _shared(self, party: int) -> _Seen | None:
        # What members allow together is theirs to say: with anything in flight they have the next
        # word. Consumers have it always, for they are given what they have asked for.
        found, word = self._groups.open(party), 1
        if found is None:
            found, word = self._subscriptions.open(party), 0
        if found is None:
            return None
        return _Seen(found.name, party, found.queue, found.reads, found.takers, word)

    def _judge(self, seen: _Seen, found: _Found, now_us: int) -> Behind:
        known = self._behind.get(seen.party)
        since_us, was_stuck = now_us, None
        if known is not None and (known.mark, known.in_flight) == (found.mark, found.in_flight):
            since_us, was_stuck = known.unchanged_since_us, known.stuck
        stuck = None
        if now_us - since_us >= STUCK_AFTER_S * SECOND_US and self._could_move(seen, found):
            full = found.in_flight >= seen.in_flight_maximum
            stuck = Stuck.UNACKNOWLEDGED if full else Stuck.STALLED
        if stuck and not was_stuck:
            fields = {
                "client_identifier": seen.name,
                "reason": stuck,
                "messages": found.messages,
                "in_flight": found.in_flight,
            }
            log.warning("queue stuck", extra={"fields": fields})
        return Behind(seen.name, found.messages, found.in_flight, found.mark, since_us, stuck)

    def _could_move(self, seen: _Seen, found: _Found) -> bool:
        """True if there is something to be sent, and somebody who takes bytes. Who does not take
        what has been written is slow, not stuck."""
        takers = map(self._connections.of, seen.takers)
        is_taken = any(taker is not None and not taker.written_bytes for taker in takers)
        return found.has_unsent and is_taken

    def _count(self, inquiry: Inquiry, seen: _Seen, from_offset: int) -> Pieces[int]:
        return inquiry.count(seen.reads, seen.party, from_offset, self._log.durable_offset())

    def _end_round(self, now_us: int) -> None:
        self.round_ended_at_us = now_us
        found = self._found.values()
        self.queues_behind = len(found)
        self.backlog_messages = sum(behind.messages for behind in found)
        self.in_flight_messages = self._found_in_flight
        self.stuck = Counter(behind.stuck for behind in found if behind.stuck)
        self.busiest = tuple(heapq.nlargest(BUSIEST_MAXIMUM, found, key=lambda it: it.messages))
        self._behind, self._found, self._found_in_flight = self._found, {}, 0
        self._unseen = [
            *self._queues.of_sessions(),
            *self._groups.queues(),
            *self._subscriptions.queues(),
        ]

    def _see_refusals(self, now_us: int) -> None:
        refused = self._log_full()
        if refused > self._refused:
            if self._refused_at_us is None:
                log.warning(
                    "log full: messages are refused, for the disk has less than log.reserve_bytes"
                    " free; make room on it, or shorten log.retention_bytes or log.retention_age_s"
                    " and reload"
                )
            self._refused_at_us = now_us
        since_us = self._refused_at_us
        if since_us is not None and now_us - since_us >= QUIET_AFTER_S * SECOND_US:
            self._refused_at_us = None
            log.info("log takes messages again")
        self._refused = refused
