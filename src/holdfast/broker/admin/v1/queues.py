"""Queues by their names: list them, look at one, read it like a topic.

Owns: what is told of a queue, and pages of its messages. Never: reads the log on the loop's own
thread, or gives anybody more than PAGE_BYTES_MAXIMUM of messages at once.

Flow: HTTP -> queue_views (what a name stands for) -> LogDirectory (on a thread) -> JSON.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, convert

from holdfast.broker.admin.http.operation import (
    LIMIT,
    Answered,
    Asked,
    Next,
    Operation,
    ProblemError,
    listing,
    number,
)
from holdfast.broker.admin.http.query import OFFSET_MAXIMUM
from holdfast.broker.admin.v1.device_filters import DeviceFilters
from holdfast.broker.admin.v1.queue_views import ALWAYS_THERE, QueueView, QueueViews
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.chores import Pieces
from holdfast.broker.server import Server
from holdfast.broker.store.questions import LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.queue_names import EVERYTHING
from holdfast.reading.directory import LogDirectory

PAGE_BYTES_MAXIMUM: Final = 1 << 20
"""Of messages in one answer, one message more at most: what JSON makes of it takes milliseconds."""
FROM: Final = number("from", 0, 0, OFFSET_MAXIMUM, "From this offset on.")
MISSING: Final = Answered("There is no queue of this name.")
COLUMNS: Final = ("topic", "value", "offset", "qos", "timestamp", "expires_at", "publisher")
_Shows = Callable[[Mapping[str, Any]], bool]


class ReaderRow(Struct, kw_only=True):
    """Who reads a queue to its end."""

    consumer_group: Annotated[
        str | None,
        Meta(
            description="Who reads: the group's name, or null for the queue's own client.",
        ),
    ]
    consumers: Annotated[
        list[str],
        Meta(description="The clients that are connected: each has a consumer of this queue."),
    ]
    committed_offset: Annotated[
        int,
        Meta(
            description="Everything below it is done: the beginning of the client's pack while it"
            " has one."
        ),
    ]
    waiting: Annotated[int, Meta(description="Messages that are not acknowledged.")]
    in_flight: Annotated[int, Meta(description="Sent and not acknowledged.")]


class Queue(Struct, kw_only=True):
    """A queue with a name."""

    queue_name: str
    kind: Annotated[
        str,
        Meta(
            description="log: everything. persisted: what is kept for DEVICE clients, all of them"
            " together. application: of one client. shared: of the groups of one filter."
        ),
    ]
    client_identifier: str | None
    topic_filter: Annotated[str | None, Meta(description="Of a shared queue.")]
    partitions: Annotated[int, Meta(description="1: a queue has one order.")]
    created_at_offset: int
    first_offset: Annotated[int | None, Meta(description="Of the oldest message.")]
    oldest_at_us: Annotated[int | None, Meta(description="When that was stored.")]
    end_offset: Annotated[int, Meta(description="What is read ends before it.")]
    messages: Annotated[
        int | None,
        Meta(
            description="What it shows, read or not; null where there is too much to count.",
        ),
    ]
    bytes: Annotated[
        int | None, Meta(description="About as much as that is in the log; null as messages.")
    ]
    exact: Annotated[
        bool,
        Meta(
            description="False: there was too much to count for a list. What is counted is then"
            " told as at least so much; the queue's own page is exact."
        ),
    ]
    consumers: Annotated[int, Meta(description="Connected clients that read it.")]
    readers: list[ReaderRow]


class QueuePage(Struct, kw_only=True):
    """A page of queues."""

    queues: list[Queue]
    next: Next


class StoredMessage(Struct, kw_only=True):
    """A message of a queue."""

    number: int | None
    offset: int
    topic_name: str
    qos: int
    stored_at_us: int
    expires_at_us: int | None
    payload_bytes: int
    payload_base64: str


class MessagePage(Struct, kw_only=True):
    """A page of messages."""

    messages: list[StoredMessage]
    next_offset: Annotated[
        int | None,
        Meta(
            description="`from` of the next page; null at the end. A page may be empty and have a"
            " next one."
        ),
    ]


class Queues:
    """What can be asked about queues."""

    def __init__(self, server: Server, readers: LogReaders, view: ViewReader) -> None:
        self._log = server.stages.kernel.log
        self._chores = server.stages.chores
        self._readers = readers
        self._views = QueueViews(server)
        self._devices = DeviceFilters(server, view)

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one = "/v1/queues/{queue_name}"
        return [
            listing(
                *("listQueues", "queues", QueuePage, self.page),
                summary="Queues by their names: the log, what is kept for DEVICE clients, and each"
                " APPLICATION client's own.",
            ),
            Operation(
                method="GET",
                path=one,
                name="showQueue",
                summary="One queue.",
                run=self.show,
                answers={200: Answered("The queue.", Queue), 404: MISSING},
            ),
            Operation(
                method="GET",
                path=f"{one}/messages",
                name="readQueue",
                summary="Messages of a queue in their order, read or not.",
                run=self.messages,
                parameters=(FROM, LIMIT),
                answers={
                    200: Answered("A page of messages.", MessagePage),
                    404: MISSING,
                    422: Answered("DEVICE clients subscribe to too many filters to look at."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> QueuePage:
        """A page of queues."""
        after, limit = asked.query["after"], asked.query["limit"]
        first = [await self._always_there(name) for name in ALWAYS_THERE if name > after]
        inquiry = Inquiry(self._log, LIST_EFFORT_MAXIMUM)
        named = await self._chores.outcome(self._views.page(after, limit + 1, inquiry))
        found = sorted([*first, *named], key=lambda view: view.queue_name)
        rows = [await self._row(view, inquiry) for view in found[:limit]]
        return QueuePage(queues=rows, next=rows[-1].queue_name if len(found) > limit else None)

    async def show(self, asked: Asked) -> Queue:
        """One queue."""
        view = await self._view(asked.path["queue_name"])
        return await self._row(view, Inquiry(self._log))

    async def messages(self, asked: Asked) -> MessagePage:
        """A page of one queue's messages."""
        view = await self._view(asked.path["queue_name"])
        shows = await self._shows(view)
        begin = max(asked.query["from"], view.begin_offset)
        rows, next_offset = await self._read(view, shows, begin, asked.query["limit"])
        first = None
        if rows:
            numbering = self._number(view, rows[0]["offset"], Inquiry(self._log))
            first = await self._chores.outcome(numbering)
        messages = [
            _message(row, None if first is None else first + place)
            for place, row in enumerate(rows)
        ]
        return MessagePage(messages=messages, next_offset=next_offset)

    async def _view(self, queue_name: str) -> QueueView:
        if queue_name in ALWAYS_THERE:
            return await self._always_there(queue_name)
        looking = self._views.named(queue_name, Inquiry(self._log))
        found = await self._chores.outcome(looking)
        if found is None:
            raise ProblemError(404, "no_such_queue", f"no queue has the name {queue_name!r}")
        return found

    async def _always_there(self, queue_name: str) -> QueueView:
        if queue_name == EVERYTHING:
            begin = self._log.begin_offset()
            return QueueView(
                queue_name=queue_name,
                kind="log",
                created_at_offset=begin,
                begin_offset=begin,
                consumers=0,
            )
        return await self._devices.view()

    async def _row(self, view: QueueView, inquiry: Inquiry) -> Queue:
        end = self._log.durable_offset()
        first, oldest_at_us = await self._chores.outcome(self._first(view, end, inquiry))
        messages = await self._chores.outcome(self._number(view, end, inquiry))
        size = await self._chores.outcome(self._bytes(view, end, inquiry))
        return Queue(
            queue_name=view.queue_name,
            kind=view.kind,
            client_identifier=view.client_identifier,
            topic_filter=view.topic_filter,
            partitions=1,
            created_at_offset=view.created_at_offset,
            first_offset=first if first < end else None,
            oldest_at_us=oldest_at_us,
            end_offset=end,
            messages=messages,
            bytes=size,
            exact=inquiry.is_exact,
            consumers=view.consumers,
            readers=[convert(reader, ReaderRow, from_attributes=True) for reader in view.readers],
        )

    def _bytes(self, view: QueueView, end: int, inquiry: Inquiry) -> Pieces[int | None]:
        """About how many bytes of the log a queue shows, if that can be counted."""
        if view.kind == "log":
            return self._log.statistics()["bytes"]
        if not view.counted:
            return None
        return (yield from inquiry.weigh(view.tables(), view.party, view.begin_offset, end))

    def _number(self, view: QueueView, offset: int, inquiry: Inquiry) -> Pieces[int | None]:
        """How many messages a queue shows before an offset, if that can be counted."""
        if view.kind == "log":
            return offset - view.begin_offset
        if not view.counted:
            return None
        return (yield from inquiry.count(view.tables(), view.party, view.begin_offset, offset))

    async def _shows(self, view: QueueView) -> _Shows:
        if view.kind == "log":
            return lambda _row: True
        return view.shows if view.counted else await self._devices.shows()

    def _first(self, view: QueueView, end: int, inquiry: Inquiry) -> Pieces[tuple[int, int | None]]:
        """The offset of the first message that a queue shows, `end` if there is none, and when it
        was stored, if that is known."""
        if view.kind == "log" or not view.counted:
            first = view.begin_offset if view.counted else end
        elif view.subscriptions:
            first = yield from inquiry.first(view.tables(), view.party, view.begin_offset, end)
        else:
            first = end
        return first, self._log.stored_at(first) if first < end else None

    async def _read(
        self, view: QueueView, shows: _Shows, begin: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Messages that are shown from an offset on, and where the next page begins."""
        if view.kind != "log" and view.counted and not view.subscriptions:
            return [], None
        end, filters = self._log.durable_offset(), view.filters()
        async with self._readers.lend() as reader:
            rows, reached = await asyncio.to_thread(_rows, reader, filters, begin, end, limit)
        return [row for row in rows if shows(row)], reached if reached < end else None


def _rows(
    reader: LogDirectory, filters: list[str], begin: int, end: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    if begin >= end:
        return [], end
    chunk = reader.read_left(
        filters,
        begin,
        end,
        columns=COLUMNS,
        rows_maximum=limit,
        bytes_maximum=PAGE_BYTES_MAXIMUM,
    )
    return chunk.batch.to_pylist(), chunk.next_offset


def _message(row: Mapping[str, Any], number: int | None) -> StoredMessage:
    expires_at = row["expires_at"]
    return StoredMessage(
        number=number,
        offset=row["offset"],
        topic_name=row["topic"],
        qos=row["qos"],
        stored_at_us=_microseconds(row["timestamp"]),
        expires_at_us=None if expires_at is None else _microseconds(expires_at),
        payload_bytes=len(row["value"]),
        payload_base64=b64encode(row["value"]).decode(),
    )


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
