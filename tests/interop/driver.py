"""Drives other people's clients, each library in a process of its own.

Owns: the process of a driver, and a test's view of one client: each call waits for its answer, and
what arrives is queued.
Never: knows a library; those are in `tests/interop/clients`, one driver each.

A driver reads commands and writes answers and events, a JSON object on each line; bytes are base64.

    {"number": 1, "client": 7, "do": "connect", "port": 1883, "transport": "tcp" or "ws",
     "version": 3, 4 or 5, "client_identifier": "a", "clean_start": true, "keep_alive_s": 60,
     "reconnects": false, "session_expiry_interval": null, "receive_maximum": null,
     "topic_alias_maximum": null,
     "will": null or {"topic", "payload", "qos", "retain", "properties"}}
    {"answer": 1, "session_present": false, "reason_code": 0, "properties": {}}
    {..., "do": "subscribe", "topic_filter": "a/#", "qos": 1, "identifier": null}
    {"answer": 2, "reason_codes": [1]}
    {..., "do": "unsubscribe", "topic_filter": "a/#"}
    {..., "do": "publish", "topic": "a/b", "payload": "AA==", "qos": 1, "retain": false,
     "properties": {"user_properties": [["name", "value"]], "topic_alias": 1, ...}}
    {"answer": 3}                                        when the broker has acknowledged it
    {..., "do": "disconnect", "reason_code": 0}
    {"answer": 4, "error": "what went wrong"}            instead of any answer
    {"event": "message", "client": 7, "topic", "payload", "qos", "retain", "properties"}
"""

import base64
import contextlib
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WITHIN_S = 60.0
"""How long a test waits for what must come."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a client has handed on."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)


class Driver:
    """One library's process."""

    def __init__(self, command: Sequence[str], directory: Path, log_file: Path) -> None:
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._numbers = itertools.count(1)
        self._clients: dict[int, DrivenClient] = {}
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def client(self) -> "DrivenClient":
        """Another client, which has not connected yet."""
        number = next(self._numbers)
        self._clients[number] = DrivenClient(self, number)
        return self._clients[number]

    def ask(self, client: int, name: str, **fields: Any) -> "Future[dict[str, Any]]":
        """Sends a command; its answer comes later."""
        number = next(self._numbers)
        answer = self._answers[number] = Future()
        command = {"number": number, "client": client, "do": name, **fields}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command, default=_encoded).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            answer.set_exception(AssertionError(f"the driver has ended: {self.log()}"))
        return answer

    def stop(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It may have ended with a command unread.
            self._process.stdin.close()
        try:
            self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(WITHIN_S)

    def is_running(self) -> bool:
        """False when it has ended by itself."""
        return self._process.poll() is None

    def log(self) -> str:
        """The last of what it wrote beside its answers."""
        return self._log_file.read_text(errors="replace")[-4_000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fields = json.loads(line)
            if "event" in fields:
                self._clients[fields.pop("client")].take(fields)
                continue
            answer = self._answers.pop(fields.pop("answer"))
            if "error" in fields:
                answer.set_exception(AssertionError(fields["error"]))
            else:
                answer.set_result(fields)
        for answer in self._answers.values():
            answer.set_exception(AssertionError(f"the driver has ended: {self.log()}"))


class DrivenClient:
    """One client of a library, as a test wants it."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number
        self._messages: queue.Queue[Message] = queue.Queue()
        self.is_connected = False
        self.session_present: bool | None = None
        """As CONNACK said; None from a library that does not tell."""
        self.connack_properties: dict[str, Any] = {}

    def connect(self, port: int, client_identifier: str, **options: Any) -> "DrivenClient":
        """Connects and waits for CONNACK; `options` are those of the command."""
        chosen = {
            "transport": "tcp",
            "version": 5,
            "clean_start": True,
            "keep_alive_s": 60,
            "reconnects": False,
            "session_expiry_interval": None,
            "receive_maximum": None,
            "topic_alias_maximum": None,
            "will": None,
            **options,
        }
        answer = self._call("connect", port=port, client_identifier=client_identifier, **chosen)
        assert answer["reason_code"] == 0
        self.session_present = answer["session_present"]
        self.connack_properties = answer["properties"]
        self.is_connected = True
        return self

    def subscribe(self, topic_filter: str, qos: int = 2, identifier: int | None = None) -> None:
        """Subscribes; the broker must grant what was asked for."""
        answer = self._call("subscribe", topic_filter=topic_filter, qos=qos, identifier=identifier)
        assert answer["reason_codes"] == [qos]

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribes and waits for UNSUBACK."""
        self._call("unsubscribe", topic_filter=topic_filter)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 1, **options: Any) -> None:
        """Publishes and waits until the broker has acknowledged it."""
        wait_for(self.begin_publish(topic, payload, qos, **options))

    def begin_publish(
        self, topic: str, payload: bytes, qos: int, *, retain: bool = False, **properties: Any
    ) -> "Future[dict[str, Any]]":
        """Publishes and does not wait."""
        return self._driver.ask(
            self._number,
            "publish",
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            properties=properties,
        )

    def disconnect(self, reason_code: int = 0) -> None:
        """Says DISCONNECT and waits until the connection has ended."""
        self.is_connected = False
        self._call("disconnect", reason_code=reason_code)

    def receive(self) -> Message:
        """The next message."""
        try:
            return self._messages.get(timeout=WITHIN_S)
        except queue.Empty:
            raise AssertionError(f"no message came; {self._driver.log()}") from None

    def receive_many(self, count: int) -> list[Message]:
        """The next messages."""
        return [self.receive() for _ in range(count)]

    def take(self, event: dict[str, Any]) -> None:
        """An event of this client; called by the driver's reader."""
        kind = event.pop("event")
        assert kind == "message", kind
        event["payload"] = base64.b64decode(event["payload"])
        properties = event["properties"]
        if "correlation_data" in properties:
            properties["correlation_data"] = base64.b64decode(properties["correlation_data"])
        self._messages.put(Message(**event))

    def _call(self, name: str, **fields: Any) -> dict[str, Any]:
        return wait_for(self._driver.ask(self._number, name, **fields))


def wait_for(answer: "Future[dict[str, Any]]") -> dict[str, Any]:
    """The answer; an error of the library fails the test."""
    return answer.result(WITHIN_S)


def _encoded(value: object) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()
