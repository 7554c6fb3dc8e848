"""A look at attached queues, some of them every second: backlog, what is in flight, who is stuck.

Owns: totals over all queues as of the last complete round, the longest queues, and the watchdog: a
client that is connected and takes bytes, has a backlog, and was sent nothing for STUCK_AFTER_S.
Never: does anything about it; it tells, in the log and in the metrics.

Invariant: one look costs a few milliseconds at most, however many queues there are.
"""

import heapq
import logging
from collections import Counter
from dataclasses import dataclass

from holdfast.broker.dispatch.sessions import Attached, Sessions
from holdfast.broker.ingress.connection import Connections
from holdfast.broker.stages import KernelStages
from holdfast.protocols.mqtt.session import own_of

log = logging.getLogger(__name__)

QUEUES_PER_LOOK = 2_000
"""Asking for a mark and what is in flight takes less than a microsecond; 20 000 queues are seen in
ten seconds."""
COUNTS_PER_LOOK = 100
"""A backlog is counted from the log's index, which takes microseconds to a millisecond."""
BUSIEST_MAXIMUM = 100
"""The longest queues that are remembered; a terminal has fewer lines."""
STUCK_AFTER_S = 30
"""As long as an acknowledgement may reasonably take on a bad radio link."""
QUIET_AFTER_S = 10
"""So long after the last refusal the log is said to take messages again."""
LOG_FULL = "publishes_refused_0x97"


@dataclass(frozen=True, slots=True)
class Behind:
    """A queue with messages that its client has not acknowledged."""

    client_identifier: str
    messages: int
    """Matching messages from the mark on: waiting and in flight."""
    in_flight: int
    mark: int
    unchanged_since_us: int
    stuck: str
    """Why nothing moves, or an empty text: `unacknowledged`, the client has as much in flight as it
    allows; `stalled`, it could be sent more."""


class Watch:
    """Sees to all queues in turn."""

    def __init__(
        self,
        kernel: KernelStages,
        sessions: Sessions,
        connections: Connections,
        counts: Counter[str],
    ) -> None:
        self._log = kernel.log
        self._dispatch = kernel.dispatch
        self._sessions = sessions
        self._connections = connections
        self._counts = counts
        self._unseen: list[tuple[int, int, int]] = []
        self._behind: dict[int, Behind] = {}
        self._found: dict[int, Behind] = {}
        self._found_in_flight = 0
        self._refused = 0
        self._refused_at_us: int | None = None
        self.queues_behind = 0
        self.backlog_messages = 0
        self.in_flight_messages = 0
        self.stuck: Counter[str] = Counter()
        self.busiest: tuple[Behind, ...] = ()

    def look(self, now_us: int) -> None:
        """One look, once a second."""
        self._see_refusals(now_us)
        counted = 0
        for _ in range(QUEUES_PER_LOOK):
            if not self._unseen:
                break
            _party, queue, connection = self._unseen.pop()
            attached = self._sessions.of(connection)
            # It may have gone since the round began.
            if attached is not None and attached.queue == queue:
                counted += self._see(attached, queue, now_us)
            if counted >= COUNTS_PER_LOOK:
                return
        if not self._unseen:
            self._end_round()

    def _see(self, attached: Attached, queue: int, now_us: int) -> int:
        mark, in_flight = self._dispatch.mark(queue), self._dispatch.in_flight(queue)
        self._found_in_flight += in_flight
        end = self._log.durable_offset()
        if mark >= end:
            return 0
        tables = [item.table() for item in own_of(attached.subscriptions)]
        if not tables:
            return 0
        party = attached.session.party
        messages = self._log.count(tables, party, mark, end)
        if messages:
            self._found[party] = self._judge(attached, messages, in_flight, mark, now_us)
        return 1

    def _judge(
        self, attached: Attached, messages: int, in_flight: int, mark: int, now_us: int
    ) -> Behind:
        known = self._behind.get(attached.session.party)
        since_us, was_stuck = now_us, ""
        if known is not None and (known.mark, known.in_flight) == (mark, in_flight):
            since_us, was_stuck = known.unchanged_since_us, known.stuck
        stuck = ""
        waits = messages > in_flight
        connection = self._connections.get(attached.connection)
        is_quiet = waits and now_us - since_us >= STUCK_AFTER_S * 1_000_000
        # Who does not take what has been written is slow, not stuck.
        if is_quiet and connection and connection.transport.get_write_buffer_size() == 0:
            full = in_flight >= attached.opening.receive_maximum
            stuck = "unacknowledged" if full else "stalled"
        client = attached.session.client_identifier
        if stuck and not was_stuck:
            fields = {
                "client_identifier": client,
                "reason": stuck,
                "messages": messages,
                "in_flight": in_flight,
            }
            log.warning("queue stuck", extra={"fields": fields})
        return Behind(client, messages, in_flight, mark, since_us, stuck)

    def _end_round(self) -> None:
        found = self._found.values()
        self.queues_behind = len(found)
        self.backlog_messages = sum(behind.messages for behind in found)
        self.in_flight_messages = self._found_in_flight
        self.stuck = Counter(behind.stuck for behind in found if behind.stuck)
        self.busiest = tuple(heapq.nlargest(BUSIEST_MAXIMUM, found, key=lambda it: it.messages))
        self._behind, self._found, self._found_in_flight = self._found, {}, 0
        self._unseen = self._dispatch.queues()

    def _see_refusals(self, now_us: int) -> None:
        refused = self._counts[LOG_FULL]
        if refused > self._refused:
            if self._refused_at_us is None:
                log.warning("log full: messages are refused until retention makes room")
            self._refused_at_us = now_us
        since_us = self._refused_at_us
        if since_us is not None and now_us - since_us >= QUIET_AFTER_S * 1_000_000:
            self._refused_at_us = None
            log.info("log takes messages again")
        self._refused = refused
