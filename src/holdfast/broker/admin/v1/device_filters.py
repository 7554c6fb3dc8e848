"""What is kept for persistent DEVICE clients, all of them together: one queue (acceptance S0.9).

Owns: the filters of all of them, looked up when somebody asks. Never: keeps them.

Invariant: at most FILTERS_MAXIMUM filters are held, a few hundred at a time between two turns.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.broker.admin.http.operation import ProblemError
from holdfast.broker.admin.v1.queue_views import QueueView
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.server import Server
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
_FILTERS: Final = (
    "SELECT DISTINCT json_extract(item.value, '$.topic_filter')"
    " FROM sessions JOIN subscriptions USING (key), json_each(subscriptions.value) AS item"
    " WHERE coalesce(json_extract(sessions.value, '$.client_type'), 'DEVICE') = 'DEVICE'"
    " AND json_extract(item.value, '$.qos') > 0 LIMIT ?"
)


class DeviceFilters:
    """The topic filters of persistent DEVICE clients."""

    def __init__(self, server: Server, view: ViewReader) -> None:
        self._sessions = server.stages.sessions
        self._view = view

    async def view(self) -> QueueView:
        """The queue."""
        filters = await self._filters(COUNTED_MAXIMUM + 1)
        counted = len(filters) <= COUNTED_MAXIMUM
        attached = (item.session for item in self._sessions.all_attached())
        return QueueView(
            queue_name=PERSISTED,
            kind="persisted",
            subscriptions=tuple(_subscription(each) for each in filters if counted),
            counted=counted,
            created_at_offset=0,
            begin_offset=0,
            consumers=sum(item.persistent and not item.application for item in attached),
        )

    async def shows(self) -> Callable[[Mapping[str, Any]], bool]:
        """Says of a stored message whether it is in the queue."""
        filters = await self._filters(FILTERS_MAXIMUM + 1)
        if len(filters) > FILTERS_MAXIMUM:
            sentence = (
                f"persistent DEVICE clients subscribe to more than {FILTERS_MAXIMUM} filters; look"
                " at one client's session, or read tbmq.msg.all"
            )
            raise ProblemError(422, "too_many_filters", sentence)
        routes = Routes(0)
        for number, topic_filter in enumerate(filters, start=1):
            routes.subscribe(
                *(_QUEUE, _QUEUE, _QUEUE, topic_filter.encode()),
                qos=1,
                no_local=False,
                retain_as_published=False,
                identifier=None,
            )
            if number % FILTERS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return lambda row: row["qos"] > 0 and bool(routes.match(row["topic"].encode()))

    async def _filters(self, limit: int) -> list[str]:
        rows = await self._view.rows(_FILTERS, limit)
        found = set()
        for (topic_filter,) in rows:
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
