"""What is kept for persistent DEVICE clients, all of them together: one queue (acceptance S0.9).

Owns: the filters of all of them, looked up when somebody asks. Never: keeps them.

Invariant: at most FILTERS_MAXIMUM filters are held, a few hundred at a time between two turns.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from holdfast.broker.observe.queue_views import QueueView
from holdfast.broker.state.broker import Broker
from holdfast.core.errors import BrokerRefusedError
from holdfast.core.queue_names import PERSISTED
from holdfast.core.share_name import is_shared, parse_shared
from holdfast.core.subscription import Subscription
from holdfast.kernel import Routes

FILTERS_MAXIMUM: Final = 100_000
"""Filters of one question: some ten megabytes for as long as it takes."""
COUNTED_MAXIMUM: Final = 256
"""Filters whose messages are counted; more would take a moment for each."""
FILTERS_AT_ONCE: Final = 500
"""Filters that are added between two turns: less than a millisecond."""
_QUEUE: Final = 1


class TooManyFiltersError(BrokerRefusedError):
    """There are more filters than are looked up for one question."""


class DeviceFilters:
    """The topic filters of persistent DEVICE clients."""

    def __init__(self, broker: Broker) -> None:
        self._sessions = broker.sessions
        self._recorded = broker.recorded

    async def view(self) -> QueueView:
        """The queue."""
        filters = await self._filters(COUNTED_MAXIMUM + 1)
        counted = len(filters) <= COUNTED_MAXIMUM
        return QueueView(
            queue_name=PERSISTED,
            kind="persisted",
            subscriptions=tuple(_subscription(each) for each in filters if counted),
            counted=counted,
            created_at_offset=0,
            begin_offset=0,
            consumers=self._sessions.persistent_devices(),
        )

    async def shows(self) -> Callable[[Mapping[str, Any]], bool]:
        """Says of a stored message whether it is in the queue."""
        filters = await self._filters(FILTERS_MAXIMUM + 1)
        if len(filters) > FILTERS_MAXIMUM:
            sentence = (
                f"persistent DEVICE clients subscribe to more than {FILTERS_MAXIMUM} filters; look"
                " at one client's session, or read tbmq.msg.all"
            )
            raise TooManyFiltersError(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
        routes = Routes(0)
        for first in range(0, len(filters), FILTERS_AT_ONCE):
            some = [_subscription(each) for each in filters[first : first + FILTERS_AT_ONCE]]
            routes.subscribe(_QUEUE, _QUEUE, _QUEUE, some)
            await asyncio.sleep(0)
        return lambda row: row["qos"] > 0 and bool(routes.match(row["topic"].encode()))

    async def _filters(self, limit: int) -> list[str]:
        found = set()
        for topic_filter in await self._recorded.device_filters(limit):
            parts = parse_shared(topic_filter) if is_shared(topic_filter) else None
            found.add(topic_filter if parts is None else parts.topic_filter)
        return sorted(found)


def _subscription(topic_filter: str) -> Subscription:
    return Subscription(
        topic_filter=topic_filter,
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )
