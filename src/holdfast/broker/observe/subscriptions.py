"""Durable subscriptions as an operator sees them: what waits in each, with consumers or without.

Owns: a round over all of them now and then. Never: reads a message.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.subscriptions import SubscriptionSeen
from holdfast.broker.store.questions import EXACT, Inquiry
from holdfast.core.units import SECOND_US

ROUND_PERIOD_US: Final = 5 * SECOND_US
"""How often all of them are looked at: a scraper asks less often."""
ROUND_SHARE: Final = 10
"""A round that takes long is followed by so many times as much of nothing."""
SUBSCRIPTION_EFFORT: Final = 20
"""What looking at one costs beside what is asked of the log."""
SUBSCRIPTIONS_SHOWN_MAXIMUM: Final = 100
"""The oldest are shown one by one in the metrics, so that which these are does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStanding:
    """One of them, as of the last round."""

    topic_name: str
    name: str
    consumers: int
    waiting: int
    """Messages that nobody has."""
    oldest_at_us: int | None
    """When the oldest message was stored that is not acknowledged; `None`: all are."""


class SubscriptionsSeen:
    """Looks at subscriptions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_looking = False
        self._began_at_us = self._look_at_us = 0
        self.oldest: tuple[SubscriptionStanding, ...] = ()
        """As of the last round, as many as are shown one by one."""
        self.count = 0
        self.waiting_messages = 0
        """Of all of them, as of the last round."""

    def look(self, now_us: int) -> None:
        """A second has passed: it may be time for a round."""
        if now_us >= self._look_at_us and not self._is_looking:
            self._is_looking, self._began_at_us = True, now_us
            self._broker.chores.begin(self._round(), self._end_round)

    def _round(self) -> Pieces[list[SubscriptionStanding]]:
        found, inquiry = [], self._broker.log.inquire(EXACT)
        for name in self._broker.subscriptions.names():
            seen = self._broker.subscriptions.of(name)
            if seen is not None:
                found.append((yield from self._standing(name, seen, inquiry)))
            yield from inquiry.rest(SUBSCRIPTION_EFFORT)
        return found

    def _standing(
        self, queue_name: str, seen: SubscriptionSeen, inquiry: Inquiry
    ) -> Pieces[SubscriptionStanding]:
        log, end = self._broker.log, self._broker.log.durable_offset()
        first = yield from inquiry.first(seen.reads, seen.party, seen.mark, end)
        waiting = yield from self._broker.subscriptions.backlog(queue_name, inquiry)
        return SubscriptionStanding(
            topic_name=seen.topic_name,
            name=seen.name,
            consumers=len(seen.consumers),
            waiting=waiting,
            oldest_at_us=log.stored_at_us(first) if first < end else None,
        )

    def _end_round(self, found: list[SubscriptionStanding]) -> None:
        now_us = self._broker.now_us()
        took_us = now_us - self._began_at_us
        self._is_looking = False
        self._look_at_us = self._began_at_us + max(ROUND_PERIOD_US, ROUND_SHARE * took_us)
        self.oldest = tuple(found[:SUBSCRIPTIONS_SHOWN_MAXIMUM])
        self.count = len(found)
        self.waiting_messages = sum(each.waiting for each in found)
