"""Queues by their names: list them, look at one, read it like a topic.

Owns: what is told of a queue, and pages of its messages. Never: reads the log on the loop's own
thread, or gives anybody more than PAGE_BYTES_MAXIMUM of messages at once.

Flow: HTTP -> named_queues (what a name stands for) -> LogDirectory (on a thread) -> JSON.
"""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, convert

from holdfast.broker.admin.http.operation import (
    LIMIT,
    Answered,
    Asked,
    Audience,
    Next,
    Operation,
    ProblemError,
    listing,
    number,
)
from holdfast.broker.admin.http.query import OFFSET_MAXIMUM
from holdfast.broker.admin.v1.ranges import AskedSpan
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.observe.device_filters import TooManyFiltersError
from holdfast.broker.observe.named_queues import NamedQueues, ShownQueue, Shows
from holdfast.broker.observe.queue_views import QueueView
from holdfast.broker.state.broker import Broker
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import Question

PAGE_BYTES_MAXIMUM: Final = 1 << 20
"""Of messages in one answer, one message more at most: what JSON makes of it takes milliseconds."""
FROM: Final = number("from", 0, 0, OFFSET_MAXIMUM, "From this offset on.")
MISSING: Final = Answered("There is no queue of this name.")
COLUMNS: Final = ("topic", "value", "offset", "qos", "timestamp", "expires_at", "publisher")


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
            " together. application: of one client. shared: of the groups of one filter. cursor:"
            " what it has not released. bridge: what its remote has not acknowledged."
            " subscription: of a durable subscription of Pulsar."
        ),
    ]
    client_identifier: str | None
    environment: Annotated[
        str | None, Meta(description="Of that client; groups have theirs each by itself.")
    ]
    topic_filter: Annotated[str | None, Meta(description="Of a shared queue or a subscription.")]
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


class QueueCriteria(Struct, kw_only=True):
    """What a queue shows: members of the body that asks for records."""

    spans: list[AskedSpan]
    topics: Annotated[list[str] | None, Meta(description="Empty where it shows nothing.")]
    qos: list[int] | None


class Queues:
    """What can be asked about queues."""

    def __init__(self, broker: Broker, readers: LogReaders) -> None:
        self._log = broker.log
        self._readers = readers
        self._queues = NamedQueues(broker)

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one = "/v1/queues/{queue_name}"
        return [
            listing(
                "queues",
                QueuePage,
                self.page,
                summary="Queues by their names: the log, what is kept for DEVICE clients, each"
                " APPLICATION client's own, and cursors.",
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
                path=f"{one}/criteria",
                name="queueCriteria",
                summary="What a queue shows, to read it with: criteria of the log's records.",
                run=self.criteria,
                answers={
                    200: Answered("The criteria.", QueueCriteria),
                    404: MISSING,
                    422: Answered("It shows what too many filters match."),
                },
                audience=Audience.READERS,
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
        page, more = await self._queues.page(asked.query["after"], asked.query["limit"])
        rows = [_row(shown) for shown in page]
        return QueuePage(queues=rows, next=rows[-1].queue_name if more else None)

    async def show(self, asked: Asked) -> Queue:
        """One queue."""
        return _row(await self._queues.show(await self._view(asked.path["queue_name"])))

    async def criteria(self, asked: Asked) -> QueueCriteria:
        """What a queue shows."""
        view = await self._view(asked.path["queue_name"])
        if view.kind == "log":
            return QueueCriteria(spans=[], topics=None, qos=None)
        if not view.counted:
            raise ProblemError(
                422, "too_many_filters", "it shows what too many filters match; read tbmq.msg.all"
            )
        spans = [
            AskedSpan(
                filter=each.topic_filter,
                from_offset=each.from_offset,
                until=min(each.until_offset, OFFSET_MAXIMUM),
                without_publisher=view.party if each.no_local else 0,
            )
            for each in view.subscriptions
        ]
        return QueueCriteria(spans=spans, topics=None if spans else [], qos=[1, 2])

    async def messages(self, asked: Asked) -> MessagePage:
        """A page of one queue's messages."""
        view = await self._view(asked.path["queue_name"])
        shows = await self._shows(view)
        begin = max(asked.query["from"], view.begin_offset)
        rows, next_offset = await self._read(view, shows, begin, asked.query["limit"])
        first = None
        if rows:
            first = await self._queues.number(view, rows[0]["offset"])
        messages = [
            _message(row, None if first is None else first + place)
            for place, row in enumerate(rows)
        ]
        return MessagePage(messages=messages, next_offset=next_offset)

    async def _view(self, queue_name: str) -> QueueView:
        found = await self._queues.view(queue_name)
        if found is None:
            raise ProblemError(404, "no_such_queue", f"no queue has the name {queue_name!r}")
        return found

    async def _shows(self, view: QueueView) -> Shows:
        try:
            return await self._queues.shows(view)
        except TooManyFiltersError as error:
            raise ProblemError(422, "too_many_filters", str(error)) from error

    async def _read(
        self, view: QueueView, shows: Shows, begin: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Messages that are shown from an offset on, and where the next page begins."""
        if view.kind != "log" and view.counted and not view.subscriptions:
            return [], None
        end, filters = self._log.durable_offset(), view.filters()
        async with self._readers.lend() as reader:
            rows, reached = await asyncio.to_thread(_rows, reader, filters, begin, end, limit)
        return [row for row in rows if shows(row)], reached if reached < end else None


def _row(shown: ShownQueue) -> Queue:
    view, contents = shown.view, shown.contents
    return Queue(
        queue_name=view.queue_name,
        kind=view.kind,
        client_identifier=view.client_identifier,
        environment=shown.environment,
        topic_filter=view.topic_filter,
        partitions=1,
        created_at_offset=view.created_at_offset,
        first_offset=contents.first_offset,
        oldest_at_us=contents.oldest_at_us,
        end_offset=contents.end_offset,
        messages=contents.messages,
        bytes=contents.size_bytes,
        exact=shown.exact,
        consumers=view.consumers,
        readers=[convert(reader, ReaderRow, from_attributes=True) for reader in view.readers],
    )


def _rows(
    reader: LogDirectory, filters: list[str], begin: int, end: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    if begin >= end:
        return [], end
    criteria = Criteria(filters=tuple(filters))
    question = Question(criteria, begin, end, COLUMNS, limit, PAGE_BYTES_MAXIMUM)
    chunk = reader.read_left(question)
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
