"""Read a log from a running broker, over its HTTP read interface.

Owns: the questions, and what becomes of a refusal. `holdfast.client.http` asks them, on a
connection that is kept open between calls.
Never: caches what it read.

Invariants:
1. Every request only reads.
2. An answer that is not what the interface promises raises; it is never taken for an empty one.
"""

import json
import ssl
from base64 import b64encode
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from holdfast.client.http import HttpClient, reason_of
from holdfast.reading.criteria import Criteria, Span
from holdfast.reading.log import (
    BrokerAwayError,
    Chunk,
    Extent,
    Question,
    Reach,
    RecordsGoneError,
    UnreadableLogError,
)
from holdfast.reading.progress import NoSuchQueueError, Progress, told_of


class RemoteLog:
    """A `ReadableLog` behind `host:port`, or `https://host:port`."""

    def __init__(
        self,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        cursor: str | None = None,
        reader: str | None = None,
    ) -> None:
        """With credentials set up, `user` is a reader or an administrator. With a `cursor`, what
        it has not released is read too where the log itself begins later. Several with one
        `reader` are one to the broker: `reach` tells what all of them have missed."""
        self.address = address
        self._cursor = cursor
        self._reader = reader
        self._client = HttpClient.at(address, user, password).keep()

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        query = [] if self._cursor is None else [("cursor", self._cursor)]
        answer = self._document("/v1/log", query)
        shard = answer["shards"][0]
        return Extent(answer["epoch"], shard["begin"], shard["end"])

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return int(self._document("/v1/log/offset", [("time", time_us)])["offset"])

    def queue(self, queue_name: str) -> Criteria:
        """What a named queue shows."""
        answer = self._document(f"/v1/queues/{quote(queue_name, safe='')}/criteria", [])
        topics = answer["topics"]
        return Criteria(
            spans=tuple(
                Span(each["filter"], each["from"], each["until"], each["without_publisher"])
                for each in answer["spans"]
            ),
            topics=None if topics is None else tuple(topics),
            qos=None if answer["qos"] is None else tuple(answer["qos"]),
        )

    def reach(
        self,
        criteria: Criteria,
        begin: int | None,
        end: int | None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """The end of a range with so many matching messages, or about so many bytes of them, `end`
        at most: without it, the durable end. Without a beginning, the log's."""
        whose = {"cursor": self._cursor, "reader": self._reader}
        more = {"rows": rows, "size_bytes": size_bytes, **whose}
        asked = _asked(criteria, begin, end, **more)
        answer = json.loads(self._answer("POST", "/v1/log/end", asked))
        extent = Extent(answer["epoch"], answer["log_begin"], answer["log_end"])
        return Reach(
            extent,
            answer["end"],
            answer["rows"],
            answer["next_at_us"],
            answer["now_us"],
            answer["behind"],
            answer["behind_exact"],
            answer.get("before_at_us"),
            answer.get("last_at_us"),
            answer["taken"],
        )

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range: at most `parts`, unless each may have
        no more than so many rows."""
        asked = _asked(criteria, begin, end, parts=parts, rows=rows, cursor=self._cursor)
        parts_found = json.loads(self._answer("POST", "/v1/log/plan", asked))["parts"]
        return [(part["from"], part["to"]) for part in parts_found]

    def read(self, question: Question) -> Chunk:
        """The matching messages from `begin` on, up to a number of rows and bytes."""
        asked = _asked(
            question.criteria,
            question.begin,
            question.end,
            max_rows=question.rows_maximum,
            max_bytes=question.bytes_maximum,
            columns=question.columns,
            cursor=self._cursor,
            reader=self._reader,
        )
        content = self._answer("POST", "/v1/log/records", asked)
        reader = pa.ipc.open_stream(content)
        told = reader.schema.metadata
        batch = reader.read_next_batch().replace_schema_metadata()
        next_offset, missing = int(told[b"next_offset"]), int(told.get(b"missing", 0))
        return Chunk(batch, next_offset, told[b"epoch"].decode(), missing)

    def progress(self, queue: str, begin: int, end: int, number: int) -> Progress:
        """Of the queues with this name, by records that lie before messages from `begin` to before
        `end`, from a control number on. Raises `NoSuchQueueError`."""
        query = urlencode({"queue": queue, "from": begin, "to": end, "number": number})
        content = self._answer("GET", f"/v1/log/progress?{query}")
        return told_of(pa.ipc.open_stream(content).read_next_batch())

    def _document(self, path: str, query: list[tuple[str, Any]]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._answer("GET", f"{path}?{urlencode(query)}"))
        return document

    def _answer(self, method: str, target: str, body: dict[str, Any] | None = None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = self._client.request(method, target, content, only_reads=True)
        except ssl.SSLCertVerificationError as problem:
            raise UnreadableLogError(
                f"the certificate of the broker at {self.address} cannot be verified: {problem}. "
                "Name the authority's file in the environment variable SSL_CERT_FILE"
            ) from problem
        except OSError as problem:
            raise BrokerAwayError(
                f"the broker at {self.address} does not answer: {reason_of(problem)}"
            ) from problem
        if answer.status == HTTPStatus.OK:
            return answer.content
        raise _refusal(self.address, answer.status, answer.content)


def _asked(criteria: Criteria, begin: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    """The body of a request: what is not asked for is left out."""
    keys = criteria.keys
    body = {
        "filter": list(criteria.filters) or None,
        "spans": [_span(span) for span in criteria.spans] or None,
        "pattern": criteria.pattern,
        "topics": None if criteria.topics is None else list(criteria.topics),
        "prefix": criteria.prefix or None,
        "qos": None if criteria.qos is None else list(criteria.qos),
        "retain": criteria.retain,
        "keys": None if keys is None else [b64encode(key).decode() for key in keys],
        "from": begin,
        "to": end,
        **more,
    }
    return {name: value for name, value in body.items() if value is not None}


def _span(span: Span) -> dict[str, Any]:
    return {
        "filter": span.topic_filter,
        "from": span.from_offset,
        "until": span.until_offset,
        "without_publisher": span.without_publisher,
    }


AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""Said by a broker that starts, and by a proxy before one that is away."""


def _refusal(address: str, status: int, body: bytes) -> Exception:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"error": "unreadable", "detail": body[:200].decode(errors="replace")}
    if status == HTTPStatus.GONE:
        return RecordsGoneError(answer["from"], answer["available_from"])
    if answer.get("error") == "no_such_queue":
        return NoSuchQueueError(f"the broker at {address} says: {answer.get('detail')}")
    if status in AWAY:
        return BrokerAwayError(
            f"the broker at {address} is not ready: {answer.get('detail')} ({status})"
        )
    if status == HTTPStatus.UNAUTHORIZED:
        return UnreadableLogError(
            f"the broker at {address} answers only a user who may read the log, or an"
            " administrator: give its name and password"
        )
    return UnreadableLogError(
        f"the broker at {address} refused: {answer.get('detail')} ({status} {answer.get('error')})"
    )
