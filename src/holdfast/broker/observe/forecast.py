"""What waits for those who are away, and when the first of it will be lost, at the rate of the last
minute: known before anything is lost, and said while somebody can still do something about it.

Owns: the forecast of one queue at rest, a slow round over all sessions at rest, and the alarm.
Never: cuts a queue; that is done when its session comes back, or by retention.

Invariant: a second has one piece of the round, so that a million queues hold up the loop no more
than ten; a round over them takes longer.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.broker.chores import Pieces
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.state.broker import Broker
from holdfast.broker.store.questions import (
    SESSION_EFFORT,
    SUBSCRIPTION_READ_EFFORT,
    Inquiry,
)
from holdfast.core.cursor import CursorSeen
from holdfast.core.quota import Quota
from holdfast.core.subscription import Rules, Subscription, own_of
from holdfast.core.units import CENTURY_S, SECOND_US

log = logging.getLogger(__name__)
T = TypeVar("T")

RATE_S: Final = 60
"""Long enough that a burst is not taken for the rate, short enough that a change of it shows."""
SLICE_SESSIONS: Final = 20
"""Sessions that are fetched at once; each takes four or five questions to the log's index."""
ALARM_S: Final = 3_600
"""Who has to do something about a queue needs as long as that to notice and to do it."""
NEVER_S: Final = CENTURY_S
"""What is further away is not in sight."""
ALARMS_MAXIMUM: Final = 1_000
"""Sessions whose alarm is remembered, so that it is told once; beyond it none is told."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is ahead of one queue at rest."""

    messages: int
    oldest_at_us: int | None
    """When its oldest message was stored."""
    first_loss_in_s: int | None
    """When it loses its first message, at the rate of the last minute; `None`: not in sight."""


class Forecast:
    """Looks ahead for queues, one by one on demand and all of them in turn."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.log
        self._sessions = broker.sessions
        self._queues = broker.queues
        self._chores = broker.chores
        self._is_looking = False
        self._is_due = False
        self._now_us = 0
        self._told: set[str] = set()
        self.waiting_messages = 0
        """Of all sessions at rest, as of the last complete round, and the same for what is next."""
        self.first_loss_in_s: int | None = None
        self.round_ended_at_us: int | None = None
        """When that round ended."""

    def of_session(
        self,
        inquiry: Inquiry,
        session: Session,
        subscriptions: tuple[Subscription, ...],
        now_us: int,
    ) -> Pieces[Ahead]:
        """What is ahead of a session at rest."""
        record = own_queue(session, own_of(subscriptions))
        queue = self._queues.at_rest(record)
        return self.of_queue(
            inquiry,
            queue.subscriptions,
            queue.party,
            queue.mark,
            self._queues.quota(record),
            now_us,
        )

    def of_queue(
        self,
        inquiry: Inquiry,
        wanted: Sequence[Subscription],
        party: int,
        mark: int,
        quota: Quota,
        now_us: int,
        *,
        rules: Rules = (),
    ) -> Pieces[Ahead]:
        """The same of any queue at rest. One that loses whole steps of bytes has no loss in sight
        here."""
        end = self._log.durable_offset()
        queue = (wanted, party)
        messages = yield from inquiry.count(*queue, mark, end, rules=rules)
        if not messages:
            return Ahead(0, None, None)
        first = yield from inquiry.first(*queue, mark, end, rules=rules)
        oldest_at_us = self._log.stored_at_us(first)
        found = []
        if quota.messages is not None:
            room = max(quota.messages - messages, 0)
            since = self._log.offset_at(max(now_us - RATE_S * SECOND_US, 0))
            arrived = yield from inquiry.count(*queue, since, end, rules=rules)
            if not room or arrived:
                found.append(room * RATE_S // arrived if room else 0)
        if quota.bytes is not None and not quota.loses_whole_steps:
            found += yield from self._full_in(inquiry, queue, mark, quota.bytes, now_us)
        if quota.age_us is not None and not quota.loses_whole_steps and oldest_at_us is not None:
            left_us = oldest_at_us + quota.age_us - now_us
            found.append(max(left_us, 0) // SECOND_US)
        in_sight = (seconds for seconds in found if seconds < NEVER_S)
        return Ahead(messages, oldest_at_us, min(in_sight, default=None))

    def of_cursor(self, inquiry: Inquiry, cursor: CursorSeen, now_us: int) -> Pieces[Ahead]:
        """The same of a cursor."""
        quota = self._queues.cursor_quota()
        return self.of_queue(inquiry, cursor.reads, cursor.party, cursor.place, quota, now_us)

    def _full_in(
        self,
        inquiry: Inquiry,
        queue: tuple[Sequence[Subscription], int],
        mark: int,
        bytes_maximum: int,
        now_us: int,
    ) -> Pieces[list[int]]:
        """In how many seconds it has so many bytes, if it comes to that."""
        end = self._log.durable_offset()
        room = max(bytes_maximum - (yield from inquiry.weigh(*queue, mark, end)), 0)
        since = self._log.offset_at(max(now_us - RATE_S * SECOND_US, 0))
        arrived = yield from inquiry.weigh(*queue, since, end)
        return [room * RATE_S // arrived] if arrived else [] if room else [0]

    def look(self, now_us: int) -> None:
        """A second has passed: the round goes on, and begins anew where it is over."""
        self._now_us, self._is_due = now_us, True
        if not self._is_looking:
            self._is_looking = True
            self._chores.begin(self._round(), self._end_round)

    def _round(self) -> Pieces[tuple[int, int | None]]:
        """All sessions at rest: what waits for them, and when the first of it is lost."""
        inquiry, after = self._log.inquire(), ""
        waiting, soonest = 0, NEVER_S
        while True:
            sessions = self._sessions.recorded_after(after, SLICE_SESSIONS)
            for session in sessions:
                yield from self._slowly(inquiry.rest(SESSION_EFFORT))
                if not session.connected and not session.expired(self._now_us):
                    ahead = yield from self._slowly(self._ahead(inquiry, session))
                    self._see(session, ahead)
                    waiting += ahead.messages
                    if ahead.first_loss_in_s is not None:
                        soonest = min(ahead.first_loss_in_s, soonest)
            if len(sessions) < SLICE_SESSIONS:
                return waiting, None if soonest == NEVER_S else soonest
            after = sessions[-1].client_identifier

    def _ahead(self, inquiry: Inquiry, session: Session) -> Pieces[Ahead]:
        subscriptions = self._sessions.subscriptions(session)
        yield from inquiry.rest(SUBSCRIPTION_READ_EFFORT * len(subscriptions))
        return (yield from self.of_session(inquiry, session, subscriptions, self._now_us))

    def _slowly(self, pieces: Pieces[T]) -> Pieces[T]:
        """The same pieces, each in a second of its own."""
        while True:
            try:
                next(pieces)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            self._is_due = False
            yield lambda: self._is_due

    def _end_round(self, outcome: tuple[int, int | None]) -> None:
        self.waiting_messages, self.first_loss_in_s = outcome
        self.round_ended_at_us = self._now_us
        self._is_looking = False

    def _see(self, session: Session, ahead: Ahead) -> None:
        client_identifier, in_s = session.client_identifier, ahead.first_loss_in_s
        if in_s is None or in_s > ALARM_S:
            self._told.discard(client_identifier)
        elif client_identifier not in self._told and len(self._told) < ALARMS_MAXIMUM:
            self._told.add(client_identifier)
            fields = {
                "client_identifier": client_identifier,
                "messages": ahead.messages,
                "first_loss_in_s": in_s,
            }
            log.warning("queue loses messages soon", extra={"fields": fields})
