"""Tables about a running broker, over HTTP.

Owns: the questions, and what becomes of a refusal. Never: caches what it read.

Invariant: all tables that one `take` names are of the moment that it returns.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode

import pyarrow as pa

from holdfast.client.http import HttpClient, reason_of
from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError
from holdfast.reading.log import UnreadableLogError


@dataclass(frozen=True, slots=True)
class MomentOfBroker:
    """A moment of which a broker keeps tables for some minutes."""

    name: str
    offset: int
    """Messages below it had been stored."""
    begin_offset: int
    epoch: str


class RemoteTables:
    """The tables of the broker at `host:port`, or `https://host:port`."""

    def __init__(self, address: str, user: str | None = None, password: str | None = None) -> None:
        """With credentials set up, `user` is an administrator, or for some tables a reader."""
        self.address = address
        self._client = HttpClient.at(address, user, password).keep()

    def take(self, names: Sequence[str]) -> MomentOfBroker:
        """Has these tables taken, all of one moment. Raises `UnreadableLogError`."""
        try:
            answer = self._client.post("/v1/tables", {"tables": list(names)})
        except BrokerAbsentError as absent:
            raise UnreadableLogError(str(absent)) from absent
        except BrokerRefusedError as refused:
            raise UnreadableLogError(f"at {self.address}, {refused}") from refused
        return MomentOfBroker(
            answer["moment"], answer["offset"], answer["begin_offset"], answer["epoch"]
        )

    def read(self, moment: str, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table of a moment."""
        query = urlencode({"moment": moment, "table": name})
        try:
            answer = self._client.request("GET", f"/v1/tables/rows?{query}")
        except OSError as problem:
            raise UnreadableLogError(
                f"the broker at {self.address} does not answer: {reason_of(problem)}"
            ) from problem
        if answer.status != HTTPStatus.OK:
            raise UnreadableLogError(
                f"the broker at {self.address} refused table {name!r}: {_detail(answer.content)}"
            )
        yield from pa.ipc.open_stream(answer.content)


def _detail(content: bytes) -> str:
    try:
        return str(json.loads(content)["detail"])
    except (ValueError, KeyError):
        return content[:200].decode(errors="replace")
