"""A driver's end of the conversation: commands from standard input, answers and events to standard
output, each a JSON object on a line.

Owns: the framing, and bytes as base64.
Never: knows a client library. The commands, their fields and the events are in
`tests.interop.driver`, the other end.

A driver is started once and drives many clients at once; each has a number. Commands of one client
begin in the order of their lines, and nobody waits for the answer of the one before.
"""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

Tell = Callable[..., None]
"""Tells the test of an event: its name, and its fields."""


class Client(Protocol):
    """One client of a library. What a method returns is the answer; what it raises, the error."""

    async def connect(self, **options: Any) -> dict[str, Any]: ...

    async def subscribe(
        self, topic_filter: str, qos: int, identifier: int | None
    ) -> dict[str, Any]: ...

    async def unsubscribe(self, topic_filter: str) -> dict[str, Any]: ...

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]
    ) -> dict[str, Any]: ...

    async def disconnect(self, reason_code: int) -> dict[str, Any]: ...


def serve(make_client: Callable[[Tell], Client]) -> None:
    """Answers commands until standard input ends."""
    asyncio.run(_Driver(make_client).run())


class _Driver:
    def __init__(self, make_client: Callable[[Tell], Client]) -> None:
        self._make_client = make_client
        self._clients: dict[int, Client] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str] = asyncio.Queue()
        reader = threading.Thread(target=_read_lines, args=(loop, lines), daemon=True)
        reader.start()
        async with asyncio.TaskGroup() as tasks:
            while line := await lines.get():
                tasks.create_task(self._answer(json.loads(line)))

    async def _answer(self, command: dict[str, Any]) -> None:
        number, name = command.pop("number"), command.pop("do")
        client = self._client(command.pop("client"))
        try:
            answer = await getattr(client, name)(**_with_bytes(command))
        except Exception as error:  # noqa: BLE001 - whatever a library raises is its answer.
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write({"answer": number, **answer})

    def _client(self, number: int) -> Client:
        if number not in self._clients:
            self._clients[number] = self._make_client(
                lambda event, **fields: _write({"event": event, "client": number, **fields})
            )
        return self._clients[number]


def _read_lines(loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str]") -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, "")


BYTES = ("payload", "correlation_data")


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    decoded = dict(fields)
    for name, value in fields.items():
        if isinstance(value, dict):
            decoded[name] = _with_bytes(value)
        elif name in BYTES:
            decoded[name] = base64.b64decode(value)
    return decoded


def _write(fields: dict[str, Any]) -> None:
    # One call, so that lines of several threads do not mix.
    sys.stdout.write(json.dumps(fields, default=_encoded) + "\n")
    sys.stdout.flush()


def _encoded(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value)} is no JSON")
