"""Read a log from a running broker, over its HTTP read interface.

Owns: the questions, and what becomes of a refusal. `holdfast.client.http` asks them, on a
connection that is kept open between calls.
Never: caches what it read.

Invariants:
1. Every request only reads.
2. An answer that is not what the interface promises raises; it is never taken for an empty one.
"""

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from holdfast.client.http import HttpClient
from holdfast.reading.log import (
    BATCH_BYTES_MAXIMUM,
    BATCH_ROWS_MAXIMUM,
    Chunk,
    Extent,
    RecordsGoneError,
    UnreadableLogError,
)


class RemoteLog:
    """A `ReadableLog` behind `host:port`, or `https://host:port`."""

    def __init__(
        self,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        cursor: str | None = None,
    ) -> None:
        """With credentials set up, `user` is a reader or an administrator. With a `cursor`, what
        it has not released is read too where the log itself begins later."""
        self.address = address
        self._cursor = cursor
        self._client = HttpClient.at(address, user, password).keep()

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        answer = self._document("/v1/log", [])
        shard = answer["shards"][0]
        return Extent(answer["epoch"], shard["begin"], shard["end"])

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return int(self._document("/v1/log/offset", [("time", time_us)])["offset"])

    def end_after_rows(self, filters: Sequence[str], begin: int, end: int, rows: int) -> int:
        """The end of a range with so many matching messages, `end` at most."""
        query = [*self._range(filters, begin, end), ("rows", rows)]
        return int(self._document("/v1/log/end", query)["end"])

    def split(
        self, filters: Sequence[str], begin: int, end: int, parts: int
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range."""
        query = [*self._range(filters, begin, end), ("parts", parts)]
        parts_found = self._document("/v1/log/plan", query)["parts"]
        return [(part["from"], part["to"]) for part in parts_found]

    def read(
        self,
        filters: Sequence[str],
        begin: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        rows_maximum: int = BATCH_ROWS_MAXIMUM,
        bytes_maximum: int = BATCH_BYTES_MAXIMUM,
    ) -> Chunk:
        """The matching messages from `begin` on, up to a number of rows and bytes."""
        query = self._range(filters, begin, end)
        query += [("max_rows", rows_maximum), ("max_bytes", bytes_maximum)]
        if columns is not None:
            query.append(("columns", ",".join(columns)))
        reader = pa.ipc.open_stream(self._answer("/v1/log/records", query))
        next_offset = int(reader.schema.metadata[b"next_offset"])
        return Chunk(reader.read_next_batch().replace_schema_metadata(), next_offset)

    def _range(self, filters: Sequence[str], begin: int, end: int) -> list[tuple[str, Any]]:
        cursor = [] if self._cursor is None else [("cursor", self._cursor)]
        return [*(("filter", each) for each in filters), ("from", begin), ("to", end), *cursor]

    def _document(self, path: str, query: list[tuple[str, Any]]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._answer(path, query))
        return document

    def _answer(self, path: str, query: list[tuple[str, Any]]) -> bytes:
        try:
            answer = self._client.request("GET", f"{path}?{urlencode(query)}")
        except OSError as problem:
            raise UnreadableLogError(
                f"the broker at {self.address} does not answer: {problem}"
            ) from problem
        if answer.status == HTTPStatus.OK:
            return answer.content
        raise _refusal(self.address, answer.status, answer.content)


def _refusal(address: str, status: int, body: bytes) -> Exception:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"error": "unreadable", "detail": body[:200].decode(errors="replace")}
    if status == HTTPStatus.GONE:
        return RecordsGoneError(answer["from"], answer["available_from"])
    if status == HTTPStatus.UNAUTHORIZED:
        return UnreadableLogError(
            f"the broker at {address} answers only a user who may read the log, or an"
            " administrator: give its name and password"
        )
    return UnreadableLogError(
        f"the broker at {address} refused: {answer.get('detail')} ({status} {answer.get('error')})"
    )
