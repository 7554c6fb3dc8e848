"""Queues by their names as an operator sees them: in pages, one in detail, and which messages it
shows.

Never: reads a message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.device_filters import DeviceFilters
from holdfast.broker.observe.queue_views import (
    ALWAYS_THERE,
    QueueContents,
    QueueView,
    QueueViews,
    everything,
)
from holdfast.broker.state.broker import Broker
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.queue_names import EVERYTHING

Shows = Callable[[Mapping[str, Any]], bool]
"""Whether a stored message is in a queue."""


@dataclass(frozen=True, slots=True)
class ShownQueue:
    """A queue with what it shows."""

    view: QueueView
    contents: QueueContents
    exact: bool
    """False: there was too much to count, and what is counted is at least so much."""
    environment: str | None
    """Of the client whose queue it is."""


class NamedQueues:
    """Looks at queues with names."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.log
        self._chores = broker.chores
        self._environments = broker.environments
        self._views = QueueViews(broker)
        self._devices = DeviceFilters(broker)

    async def page(self, after: str, limit: int) -> tuple[list[ShownQueue], bool]:
        """The first queues after one by name, and whether there are more."""
        first = [await self._always_there(name) for name in ALWAYS_THERE if name > after]
        inquiry = self._log.inquire(LIST_EFFORT_MAXIMUM)
        named = await self._chores.outcome(self._views.page(after, limit + 1, inquiry))
        found = sorted([*first, *named], key=lambda view: view.queue_name)
        page = [await self._shown(view, inquiry) for view in found[:limit]]
        return page, len(found) > limit

    async def show(self, view: QueueView) -> ShownQueue:
        """What a queue shows, counted to the end."""
        return await self._shown(view, self._log.inquire(EXACT))

    async def view(self, queue_name: str) -> QueueView | None:
        """The queue of this name, if there is one."""
        if queue_name in ALWAYS_THERE:
            return await self._always_there(queue_name)
        return await self._chores.outcome(self._views.named(queue_name, self._log.inquire()))

    async def number(self, view: QueueView, offset: int) -> int | None:
        """How many messages a queue shows before an offset, if that can be counted."""
        return await self._chores.outcome(self._views.number(view, offset, self._log.inquire()))

    async def shows(self, view: QueueView) -> Shows:
        """Says which messages are in a queue. Raises `TooManyFiltersError`."""
        if view.kind == "log":
            return lambda _row: True
        return view.shows if view.counted else await self._devices.shows()

    async def _always_there(self, queue_name: str) -> QueueView:
        return everything(self._log) if queue_name == EVERYTHING else await self._devices.view()

    async def _shown(self, view: QueueView, inquiry: Inquiry) -> ShownQueue:
        return await self._chores.outcome(self._counted(view, inquiry))

    def _counted(self, view: QueueView, inquiry: Inquiry) -> Pieces[ShownQueue]:
        contents = yield from self._views.contents(view, inquiry)
        client = view.client_identifier
        environment = None if client is None else self._environments.of_owner(client)
        return ShownQueue(view, contents, inquiry.is_exact, environment)
