"""When old segments go, and what has to outlive them.

Owns: when retention is due, and the list of cursors whose unread messages are carried along: not
those of sessions that have expired, and of devices that are away none that are too old for them.
Never: removes or copies a byte; the log does.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.broker.chores import at_once
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import UNLIMITED_MESSAGES, NamedQueue, kept_from
from holdfast.broker.store.tables import parse_session, parse_subscriptions
from holdfast.core.config import Config
from holdfast.kernel import Log, state_mark
from holdfast.protocols.mqtt.session import Session, own_of

AGE_PERIOD_US = 600_000_000
"""How often the age of the oldest segment is looked at: messages are kept for days, so ten minutes
more or less are nothing."""
NOTHING = 2**64 - 1
"""From here on messages are kept for a session that has expired and is still to be cleared away."""
SIZE_PERIOD_US = 5_000_000
"""How often the size of the log is looked at: a disk that writes 200 MB a second adds one
gigabyte."""


class Retention:
    """Lets the log forget what is past its time."""

    def __init__(self, config: Config, log: Log, records: ControlRecords, now_us: int) -> None:
        self._config = config
        self._log = log
        self._records = records
        self._age_at_us = now_us + AGE_PERIOD_US
        self._size_at_us = now_us + SIZE_PERIOD_US

    def reconfigure(self, config: Config) -> None:
        """Keeps for this long, and this much, from now on; the next sweep looks at both."""
        self._config = config
        self._age_at_us = self._size_at_us = 0

    def due(self, now_us: int) -> bool:
        """True if it is time for `run`."""
        if now_us >= self._age_at_us:
            self._age_at_us = now_us + AGE_PERIOD_US
            return True
        if now_us >= self._size_at_us:
            self._size_at_us = now_us + SIZE_PERIOD_US
            return self._log.statistics()["bytes"] > self._config.retention_bytes
        return False

    def run(
        self, marks: dict[int, int], groups: Iterable[dict[str, Any]], now_us: int
    ) -> dict[str, Any]:
        """Removes what is past retention; `marks` are those of attached sessions, by party, and
        `groups` the cursors of shared subscriptions. Each of the `losses` has its reason last."""
        ttl_us = self._config.queue_ttl_s * 1_000_000
        oldest = self._log.offset_at(max(now_us - ttl_us, 0)) if ttl_us else 0
        cursors, aged, ended = list[dict[str, Any]](), set[int](), set[int]()
        for session, cursor in self._cursors(marks, oldest, now_us):
            cursors.append(cursor)
            if session.expired(now_us):
                ended.add(session.party)
            elif session.bounded and cursor["keep_from"]:
                aged.add(session.party)

        def reason(party: int, end: int) -> str:
            if party in ended:
                return "session_ended"
            return "ttl" if party in aged and end <= oldest else "retention"

        outcome = self._log.retain(
            maximum_age_us=self._config.retention_age_s * 1_000_000,
            maximum_bytes=self._config.retention_bytes,
            cursors=[*cursors, *groups],
            now_us=now_us,
        )
        outcome["losses"] = [
            (party, first, end, count, reason(party, end))
            for party, first, end, count in outcome["losses"]
        ]
        if outcome["unfinished"]:
            # What it copied has to be committed first; the next sweep goes on.
            self._age_at_us = now_us
        return outcome

    def _cursors(
        self, marks: dict[int, int], oldest: int, now_us: int
    ) -> Iterator[tuple[Session, dict[str, Any]]]:
        for session_value, subscriptions_value in self._sessions():
            session = parse_session(session_value)
            subscriptions = own_of(parse_subscriptions(subscriptions_value))
            mark, keep_from = marks.get(session.party), 0
            maximum = self._config.queue_messages_maximum
            if not session.bounded:
                named = NamedQueue(session.party, subscriptions, session.created_at_offset)
                keep_from, maximum = self._kept_from(named, now_us), UNLIMITED_MESSAGES
            elif mark is None:
                keep_from = oldest
            if session.expired(now_us):
                keep_from = NOTHING
            if mark is None:
                state = self._log.delivery_state(session.party)
                mark = state_mark(state) if state else session.created_at_offset
            if subscriptions:
                yield (
                    session,
                    {
                        "party": session.party,
                        "mark": mark,
                        "subscriptions": [item.table() for item in subscriptions],
                        "keep_from": keep_from,
                        "messages_maximum": maximum,
                    },
                )

    def _kept_from(self, named: NamedQueue, now_us: int) -> int:
        properties = self._config.application_queue_properties
        return at_once(kept_from(self._log, Inquiry(self._log), named, properties, now_us))

    def _sessions(self) -> Iterable[tuple[bytes, bytes]]:
        return self._records.refresh().sessions()
