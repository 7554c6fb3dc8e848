"""Pulsar's own client as a test wants it: each call waits for its answer.

Owns: a test's view of a client, its producers and its consumers. Never: knows the library, which is
in a process of its own (`tests.interop.clients.pulsar`).
"""

import base64
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop.driver import Driver, wait_for

NUMBERS = itertools.count(1)
Topic = str | list[str] | dict[str, str]
WITHIN_MS = 60_000
"""How long a message that must come may take."""
NOTHING_FOR_MS = 1_500
"""How long nothing comes where nothing may; a broker that is wrong has sent it by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message that a consumer was given."""

    place: int
    payload: bytes
    message_id: tuple[int, int, int]
    """Ledger, entry, and place in its batch; -1 of one that came alone."""
    topic: str
    properties: dict[str, str]
    key: str
    ordering_key: str
    event_time_ms: int
    publish_time_ms: int
    producer: str
    redeliveries: int
    is_null: bool | None = None
    """Whether it has no value at all; the library for Java alone tells that, and what follows."""
    schema_version: int | None = None


class Official:
    """One client of the library."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._number = next(NUMBERS)
        self._is_connected = False

    def connect(
        self, port: int, *, user: tuple[str, str] | None = None, operation_timeout_s: int = 60
    ) -> "Official":
        """A client of the broker at this port."""
        self.call(
            "connect",
            address=f"127.0.0.1:{port}",
            user=user,
            operation_timeout_s=operation_timeout_s,
        )
        self._is_connected = True
        return self

    def producer(self, topic: str, **options: Any) -> "OfficialProducer":
        """A producer; `options` are the library's."""
        return OfficialProducer(self, topic, options)

    def consumer(self, topic: Topic, subscription: str, **options: Any) -> "OfficialConsumer":
        """A consumer of a topic, a list of topics or a `pattern`; `kind` is the type of its
        subscription and `position` where a new one begins, the other `options` are the
        library's."""
        return OfficialConsumer(self, topic, subscription, options)

    def partitions(self, topic: str) -> list[str]:
        """The partitions of a topic, as topics."""
        topics: list[str] = self.call("partitions", topic=topic)["topics"]
        return topics

    def defaults(self) -> dict[str, Any]:
        """What the library takes where a consumer's options say nothing."""
        return self.call("defaults")

    def disconnect(self) -> None:
        """Ends it with all that it has."""
        if self._is_connected:
            self._is_connected = False
            self.call("disconnect")

    def call(self, name: str, **fields: Any) -> dict[str, Any]:
        """Asks the library for something; what it raises fails the test."""
        return wait_for(self._driver.ask(self._number, name, **fields))


class OfficialProducer:
    """One of its producers."""

    def __init__(self, client: Official, topic: str, options: dict[str, Any]) -> None:
        self._client = client
        self._key = f"producer{next(NUMBERS)}"
        answer = client.call("produce", producer=self._key, topic=topic, **options)
        self.name: str = answer["name"]
        self.last_sequence_id: int = answer["last_sequence_id"]

    def send(self, payload: bytes, **options: Any) -> tuple[int, int, int]:
        """Sends one message and waits for its receipt; returns its message id."""
        answer = self._client.call("send", producer=self._key, payload=payload, **options)
        return _message_id(answer["message_id"])

    def send_many(self, payloads: list[bytes], **options: Any) -> list[tuple[int, int, int]]:
        """Sends messages together and waits for all receipts."""
        encoded = [base64.b64encode(payload).decode() for payload in payloads]
        answer = self._client.call("send_many", producer=self._key, payloads=encoded, **options)
        refused = [outcome for outcome in answer["message_ids"] if not isinstance(outcome, list)]
        assert not refused, refused[0]
        return [_message_id(outcome) for outcome in answer["message_ids"]]

    def sequence_id(self) -> int:
        """That of the last message which has a receipt."""
        answer = self._client.call("sequence_id", producer=self._key)
        return int(answer["sequence_id"])

    def close(self) -> None:
        """Ends it."""
        self._client.call("close_producer", producer=self._key)


class OfficialConsumer:
    """One of its consumers."""

    def __init__(
        self, client: Official, topic: Topic, subscription: str, options: dict[str, Any]
    ) -> None:
        self._client = client
        self._key = f"consumer{next(NUMBERS)}"
        client.call(
            "subscribe", consumer=self._key, topic=topic, subscription=subscription, **options
        )

    def receive(self, timeout_ms: int | None = WITHIN_MS) -> Received:
        """The next message; None waits as long as a test does."""
        answer = self._client.call("receive", consumer=self._key, timeout_ms=timeout_ms)
        answer["payload"] = base64.b64decode(answer["payload"])
        answer["message_id"] = _message_id(answer["message_id"])
        return Received(**answer)

    def receive_many(self, count: int) -> list[Received]:
        """The next messages."""
        return [self.receive() for _ in range(count)]

    def take(self, count: int) -> list[bytes]:
        """The next messages, acknowledged; returns what they say."""
        taken = []
        for _ in range(count):
            message = self.receive()
            self.acknowledge(message)
            taken.append(message.payload)
        return taken

    def receives_nothing(self, for_ms: int = NOTHING_FOR_MS) -> None:
        """Nothing comes for a while."""
        with pytest.raises(AssertionError, match="Timeout"):
            self.receive(for_ms)

    def acknowledge(self, message: Received) -> None:
        """Acknowledges one message."""
        self._call("acknowledge", place=message.place, up_to=False)

    def acknowledge_up_to(self, message: Received) -> None:
        """Acknowledges all up to and including this one."""
        self._call("acknowledge", place=message.place, up_to=True)

    def give_back(self, message: Received) -> None:
        """Acknowledges one message negatively."""
        self._call("give_back", place=message.place)

    def unsubscribe(self) -> None:
        """Ends the subscription."""
        self._call("unsubscribe")

    def close(self) -> None:
        """Ends it."""
        self._call("close_consumer")

    def _call(self, name: str, **fields: Any) -> None:
        self._client.call(name, consumer=self._key, **fields)


def _message_id(told: list[int]) -> tuple[int, int, int]:
    ledger, entry, index = told
    return ledger, entry, index
