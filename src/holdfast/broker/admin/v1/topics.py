"""Topics of the log with their counts, and retained messages: list, look at one, remove it.

Never: reads the log on the loop's own thread.
"""

import asyncio
from base64 import b64encode
from datetime import datetime
from typing import Any

from msgspec import Struct, convert

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Operation,
    Parameter,
    ProblemError,
    bad_request,
    listing,
    text,
)
from holdfast.broker.admin.v1.publish import Publishing
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.commands import Message
from holdfast.broker.state.broker import Broker
from holdfast.kernel import is_valid_topic_filter, is_valid_topic_name
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import Question, RecordsGoneError

COLUMNS = ("topic", "value", "offset", "qos", "timestamp", "expires_at")


def _filter(description: str) -> Parameter:
    plain = text("filter", description)

    def read(given: Any) -> str:
        found = str(plain.read(given)) or "#"
        if not is_valid_topic_filter(found.encode()):
            raise bad_request(f"filter {found!r} is not a valid MQTT topic filter")
        return found

    return Parameter("filter", {**plain.schema, "default": "#"}, description, read)


def _topic_name() -> Parameter:
    plain = text("topic_name", "The topic of the retained message; it must be given.")

    def read(given: Any) -> str:
        found = str(plain.read(given))
        if not is_valid_topic_name(found.encode()):
            raise bad_request(f"topic_name {found!r} is not a valid MQTT topic name")
        return found

    return Parameter("topic_name", plain.schema, plain.description, read)


TOPIC_NAME = _topic_name()
ONE = "/v1/retained/message"
MISSING = Answered("No message is retained there.")


class TopicRow(Struct, kw_only=True):
    """A topic of the log."""

    topic_name: str
    messages: int


class TopicPage(Struct, kw_only=True):
    """A page of topics."""

    topics: list[TopicRow]
    next: Next


class RetainedRow(Struct, kw_only=True):
    """A retained message."""

    topic_name: str
    offset: int
    payload_bytes: int
    qos: int
    stored_at_us: int
    expires_at_us: int | None


class RetainedMessage(RetainedRow, kw_only=True):
    """A retained message with its payload."""

    payload_base64: str


class RetainedPage(Struct, kw_only=True):
    """A page of retained messages."""

    retained: list[RetainedRow]
    next: Next


class RetainedDone(Struct, kw_only=True):
    """What was done to a retained message."""

    topic_name: str
    done: str


class Topics:
    """What can be asked about topics and retained messages."""

    def __init__(self, broker: Broker, readers: LogReaders, publishing: Publishing) -> None:
        self._log = broker.log
        self._readers = readers
        self._publishing = publishing

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        found = Answered("The message.", RetainedMessage)
        return [
            listing(
                "topics",
                TopicPage,
                self.topics,
                summary="Topics of the log with their number of stored messages, by name.",
                parameters=(_filter("Only topics that match."),),
            ),
            listing(
                "retained",
                RetainedPage,
                self.retained,
                summary="Retained messages in the order of their offsets.",
                parameters=(_filter("Only topics that match."),),
            ),
            Operation(
                method="GET",
                path=ONE,
                name="showRetained",
                summary="One retained message with its payload.",
                run=self.show,
                parameters=(TOPIC_NAME,),
                answers={200: found, 404: MISSING},
            ),
            Operation(
                method="DELETE",
                path=ONE,
                name="removeRetained",
                summary="Remove a retained message, as an empty retained PUBLISH does.",
                run=self.remove,
                parameters=(TOPIC_NAME,),
                answers={
                    200: Answered("It is removed.", RetainedDone),
                    404: MISSING,
                    503: Answered("The log is full, or too much is being published here."),
                    504: Answered("The disk does not answer."),
                },
            ),
        ]

    async def topics(self, asked: Asked) -> TopicPage:
        """A page of topics."""
        limit = asked.query["limit"]
        async with self._readers.lend() as reader:
            found = await asyncio.to_thread(
                reader.topics, asked.query["filter"], asked.query["after"], limit + 1
            )
        page = found[:limit]
        rows = [TopicRow(topic_name=name, messages=count) for name, count in page]
        return TopicPage(topics=rows, next=page[-1][0] if len(found) > limit else None)

    async def retained(self, asked: Asked) -> RetainedPage:
        """A page of retained messages."""
        after = asked.query["after"]
        if after and not (after.isascii() and after.isdigit()):
            raise bad_request(f"after must be an offset, not {after!r}")
        limit = asked.query["limit"]
        found, reached, end = list[int](), int(after) + 1 if after else 0, self._log.end_offset()
        while len(found) <= limit and reached < end:
            part = self._log.retained(asked.query["filter"], reached, limit + 1 - len(found))
            found += part.offsets
            reached = part.reached
            # One look goes through a bounded number of topics; between two, others have their turn.
            await asyncio.sleep(0)
        page = found[:limit]
        messages = await self._read(asked.query["filter"], page)
        rows = [convert(message, RetainedRow, from_attributes=True) for message in messages]
        return RetainedPage(retained=rows, next=str(page[-1]) if len(found) > limit else None)

    async def show(self, asked: Asked) -> RetainedMessage:
        """One retained message."""
        topic_name = asked.query["topic_name"]
        messages = await self._read(topic_name, self._offsets(topic_name))
        if not messages:
            raise self._missing(topic_name)
        return messages[0]

    async def remove(self, asked: Asked) -> RetainedDone:
        """Removes one retained message, durably."""
        topic_name = asked.query["topic_name"]
        if not self._offsets(topic_name):
            raise self._missing(topic_name)
        await self._publishing.send(
            Message(topic_name=topic_name, payload=b"", qos=1, retain=True, properties={})
        )
        return RetainedDone(topic_name=topic_name, done="removed")

    def _offsets(self, topic_name: str) -> list[int]:
        return self._log.retained(topic_name, 0, 1).offsets

    def _missing(self, topic_name: str) -> ProblemError:
        return ProblemError(404, "not_retained", f"no message is retained on {topic_name!r}")

    async def _read(self, topic_filter: str, offsets: list[int]) -> list[RetainedMessage]:
        async with self._readers.lend() as reader:
            return await asyncio.to_thread(_messages, reader, topic_filter, offsets)


def _messages(reader: LogDirectory, topic_filter: str, offsets: list[int]) -> list[RetainedMessage]:
    found = []
    criteria = Criteria(filters=(topic_filter,))
    for offset in offsets:
        try:
            chunk = reader.read(Question(criteria, offset, offset + 1, COLUMNS))
        except RecordsGoneError:
            # Retention has passed, or the message has been replaced in the meantime.
            continue
        for row in chunk.batch.to_pylist():
            expires_at = row["expires_at"]
            found.append(
                RetainedMessage(
                    topic_name=row["topic"],
                    offset=row["offset"],
                    payload_bytes=len(row["value"]),
                    payload_base64=b64encode(row["value"]).decode(),
                    qos=row["qos"],
                    stored_at_us=_microseconds(row["timestamp"]),
                    expires_at_us=None if expires_at is None else _microseconds(expires_at),
                )
            )
    return found


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
