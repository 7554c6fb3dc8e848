"""What waits for those who are away, and when the first of it will be lost, at the rate of the last
minute: known before anything is lost, and said while somebody can still do something about it.

Owns: the forecast of one queue at rest, a slow round over all sessions at rest, and the alarm.
Never: cuts a queue; that is done when its session comes back, or by retention.

Invariant: one look takes SESSIONS_PER_LOOK queues, so that a million of them hold up the loop no
more than ten; a round over them takes longer.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.broker.dispatch.queues import queue_at_rest
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table, parse_session, parse_subscriptions
from holdfast.core.config import Config
from holdfast.kernel import Log
from holdfast.protocols.mqtt.session import Session, Subscription, own_of

log = logging.getLogger(__name__)

SECOND_US: Final = 1_000_000
RATE_S: Final = 60
"""Long enough that a burst is not taken for the rate, short enough that a change of it shows."""
SESSIONS_PER_LOOK: Final = 5
"""Each takes some fifty questions to the log's index: a few milliseconds."""
ALARM_S: Final = 3_600
"""Who has to do something about a queue needs as long as that to notice and to do it."""
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

    def __init__(
        self, kernel_log: Log, records: ControlRecords, config: Callable[[], Config]
    ) -> None:
        self._log = kernel_log
        self._records = records
        self._config = config
        self._after = b""
        self._waiting = 0
        self._soonest: int | None = None
        self._told: set[str] = set()
        self.waiting_messages = 0
        """Of all sessions at rest, as of the last complete round, and what follows likewise."""
        self.first_loss_in_s: int | None = None

    def of_session(
        self,
        session: Session,
        subscriptions: tuple[Subscription, ...],
        now_us: int,
        *,
        within_s: int | None = None,
    ) -> Ahead:
        """What is ahead of a session at rest. A queue with a name is bounded by bytes and age of
        its own, and has no loss in sight here."""
        own = own_of(subscriptions)
        tables = [item.table() for item in own]
        mark = queue_at_rest(self._log, session, own).mark
        return self.of_queue(
            *(tables, session.party, mark, now_us), bounded=session.bounded, within_s=within_s
        )

    def of_queue(
        self,
        tables: Sequence[dict[str, Any]],
        party: int,
        mark: int,
        now_us: int,
        *,
        bounded: bool = True,
        ages: bool = True,
        within_s: int | None = None,
    ) -> Ahead:
        """The same of any queue at rest; `ages`: its messages are removed when they are old. With
        `within_s` its oldest message is only looked for if it will be too old by then."""
        end = self._log.durable_offset()
        queue = (list(tables), party)
        messages = self._log.count(*queue, mark, end) if tables and mark < end else 0
        if not messages:
            return Ahead(0, None, None)
        oldest_at_us = None
        if within_s is None or self._is_old_within(queue, mark, within_s, now_us):
            oldest_at_us = self._stored_at_us(self._oldest(queue, mark, end), now_us)
        if not bounded:
            return Ahead(messages, oldest_at_us, None)
        config = self._config()
        room = max(config.queue_messages_maximum - messages, 0)
        since = self._log.offset_at(max(now_us - RATE_S * SECOND_US, 0))
        arrived = self._log.count(*queue, since, end) if since < end else 0
        found = []
        if not room or arrived:
            found.append(room * RATE_S // arrived if room else 0)
        if ages and config.queue_ttl_s and oldest_at_us is not None:
            left_us = oldest_at_us + config.queue_ttl_s * SECOND_US - now_us
            found.append(max(left_us, 0) // SECOND_US)
        return Ahead(messages, oldest_at_us, min(found, default=None))

    def look(self, now_us: int) -> None:
        """One look, once a second."""
        rows = self._records.refresh().rows(Table.SESSIONS, self._after, SESSIONS_PER_LOOK)
        for key, value in rows:
            session = parse_session(value)
            if not session.connected and not session.expired(now_us):
                subscriptions = parse_subscriptions(self._records.get(Table.SUBSCRIPTIONS, key))
                ahead = self.of_session(session, subscriptions, now_us, within_s=ALARM_S)
                self._see(session, ahead)
        if len(rows) == SESSIONS_PER_LOOK:
            self._after = rows[-1][0]
            return
        self.waiting_messages, self._waiting = self._waiting, 0
        self.first_loss_in_s, self._soonest = self._soonest, None
        self._after = b""

    def _see(self, session: Session, ahead: Ahead) -> None:
        self._waiting += ahead.messages
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
        if in_s is not None:
            self._soonest = in_s if self._soonest is None else min(in_s, self._soonest)

    def _is_old_within(
        self, queue: tuple[list[dict[str, Any]], int], mark: int, within_s: int, now_us: int
    ) -> bool:
        ttl_s = self._config().queue_ttl_s
        if not ttl_s:
            return False
        old = self._log.offset_at(max(now_us - (ttl_s - within_s) * SECOND_US, 0))
        return mark < old and self._log.count(*queue, mark, old) > 0

    def _oldest(self, queue: tuple[list[dict[str, Any]], int], mark: int, end: int) -> int:
        """The offset of its first message: found by counting, which reads no message, where looking
        for it would read as many as wait."""
        before, last = mark, end - 1
        while before < last:
            middle = (before + last) // 2
            if self._log.count(*queue, mark, middle + 1):
                last = middle
            else:
                before = middle + 1
        return before

    def _stored_at_us(self, offset: int, now_us: int) -> int:
        """When the message at this offset was stored, to the second: the log is asked where times
        lie, not the other way around."""
        low, high = 0, now_us // SECOND_US + 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._log.offset_at(middle * SECOND_US) <= offset:
                low = middle
            else:
                high = middle - 1
        return low * SECOND_US
