"""Read a log from a running broker, over its HTTP read interface.

Owns: one connection, kept open between calls.
Never: caches what it read.

Invariants:
1. Every request only reads, so one that met a connection that had gone stale is simply asked again,
   once.
2. An answer that is not what the interface promises raises; it is never taken for an empty one.
"""

import http.client
import json
from base64 import b64encode
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from holdfast.reading.log import (
    BATCH_BYTES_MAXIMUM,
    BATCH_ROWS_MAXIMUM,
    Chunk,
    Extent,
    RecordsGoneError,
    UnreadableLogError,
)

TIMEOUT_S = 60
"""A read of four megabytes takes milliseconds; a broker that is recovering may take seconds."""
_STALE = (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest)


class RemoteLog:
    """A `ReadableLog` behind `host:port`, or `https://host:port`."""

    def __init__(self, address: str, user: str | None = None, password: str | None = None) -> None:
        """With credentials set up, `user` is a reader or an administrator."""
        self.address = address
        secure = address.startswith("https://")
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(address.removeprefix("https://"), timeout=TIMEOUT_S)
        self._headers = {}
        if user is not None:
            word = b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {word}"

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
        query = [*_range(filters, begin, end), ("rows", rows)]
        return int(self._document("/v1/log/end", query)["end"])

    def split(
        self, filters: Sequence[str], begin: int, end: int, parts: int
    ) -> list[tuple[int, int]]:
        """Ranges of about equal bytes that cover the range."""
        query = [*_range(filters, begin, end), ("parts", parts)]
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
        query = _range(filters, begin, end)
        query += [("max_rows", rows_maximum), ("max_bytes", bytes_maximum)]
        if columns is not None:
            query.append(("columns", ",".join(columns)))
        reader = pa.ipc.open_stream(self._answer("/v1/log/records", query))
        next_offset = int(reader.schema.metadata[b"next_offset"])
        return Chunk(reader.read_next_batch().replace_schema_metadata(), next_offset)

    def _document(self, path: str, query: list[tuple[str, Any]]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._answer(path, query))
        return document

    def _answer(self, path: str, query: list[tuple[str, Any]]) -> bytes:
        try:
            status, body = self._exchange(f"{path}?{urlencode(query)}")
        except (OSError, http.client.HTTPException) as problem:
            self._connection.close()
            raise UnreadableLogError(
                f"the broker at {self.address} does not answer: {problem}"
            ) from problem
        if status == HTTPStatus.OK:
            return body
        raise _refusal(self.address, status, body)

    def _exchange(self, target: str) -> tuple[int, bytes]:
        reused = self._connection.sock is not None
        try:
            return self._request(target)
        except _STALE:
            if not reused:
                raise
            self._connection.close()
            return self._request(target)

    def _request(self, target: str) -> tuple[int, bytes]:
        self._connection.request("GET", target, headers=self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def _range(filters: Sequence[str], begin: int, end: int) -> list[tuple[str, Any]]:
    return [*(("filter", each) for each in filters), ("from", begin), ("to", end)]


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
