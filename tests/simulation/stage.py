"""Where the parts of a run play: their clients, one history, and the end of the faults.

Owns: what every part does the same way. Never: knows a part, or judges.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random
from typing import Any, Protocol

from holdfast.testing.loop import VirtualLoop
from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.expectations import Expectations
from tests.equipment.groups import check_groups_give_each_message_to_one
from tests.equipment.history import History
from tests.equipment.ledger import lacking

AGAIN_AFTER_S = 0.5
LEAVES_WITHIN_S = 10.0
IDLE_WITHIN_S = 1_000.0
NO_PROGRESS_S = 90.0
"""Without a message for so long nothing more comes: longer than any answer is waited for."""

LOOKS_EVERY_S = 5.0

KEEP_ALIVE_S = 5


class Part(Protocol):
    """Some clients with something to do."""

    async def begin(self) -> None:
        """Starts what goes on until the stage is calm."""

    async def end(self) -> None:
        """The faults are over: brings its clients where everything can arrive."""


class Stage:
    """The clients of all parts."""

    def __init__(self, loop: VirtualLoop, host: str, port: int) -> None:
        self.random = Random(loop.random.getrandbits(63))
        self.history = History(clock=loop.time)
        self.hardships = loop.hardships
        self.calm = False
        self.clients: list[Client] = []
        self._loop = loop
        self.host = host
        self._address = (host, port)
        self._tasks: list[asyncio.Task[None]] = []

    def client(self, name: str, options: ClientOptions) -> Client:
        """A new client."""
        client = Client(name, self.history, options, Random(self.random.getrandbits(63)))
        self.clients.append(client)
        return client

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs beside everything else, to the end of the run."""
        self._tasks.append(self._loop.create_task(coroutine))

    async def pause(self, least_s: float, most_s: float) -> None:
        """A random time."""
        await asyncio.sleep(self.random.uniform(least_s, most_s))

    async def try_to_connect(self, client: Client) -> bool:
        """True if it is connected now; waits a little where that fails."""
        if not client.lost.is_set():
            return True
        try:
            await client.connect(*self._address)
        except ConnectionFailedError:
            await asyncio.sleep(AGAIN_AFTER_S)
            return False
        return True

    async def take_over(self, client: Client) -> None:
        """Connects once more, without an end of the former connection."""
        with contextlib.suppress(ConnectionFailedError):
            await client.connect(*self._address)

    async def subscribe(self, client: Client, topic_filter: str, qos: int) -> None:
        """Connects and subscribes, however often that takes."""
        while True:
            if await self.try_to_connect(client):
                with contextlib.suppress(ConnectionFailedError):
                    await client.subscribe(topic_filter, qos)
                    return

    async def stay(self, client: Client) -> None:
        """Connected whenever that is possible."""
        while True:
            if await self.try_to_connect(client):
                await client.lost.wait()

    async def leave(self, client: Client, reason_code: int = 0) -> None:
        """Says DISCONNECT and waits until the broker has closed, or for so long."""
        client.leave(reason_code)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVES_WITHIN_S):
                await client.lost.wait()
        client.drop()
        await client.lost.wait()

    async def drop(self, client: Client) -> None:
        """Ends the connection without a word."""
        client.drop()
        await client.lost.wait()

    async def drain(self) -> None:
        """Everything published is acknowledged, and arrives; or nothing more comes."""
        async with asyncio.timeout(IDLE_WITHIN_S):
            for client in self.clients:
                await client.idle.wait()
        quiet_s, seen = 0.0, -1
        while self._is_lacking() and quiet_s < NO_PROGRESS_S:
            await asyncio.sleep(LOOKS_EVERY_S)
            received = sum(client.received_count for client in self.clients)
            quiet_s = quiet_s + LOOKS_EVERY_S if received == seen else 0.0
            seen = received

    def _is_lacking(self) -> bool:
        """What was given up or cut off is lacking too, and never comes."""
        if check_groups_give_each_message_to_one(self.history):
            return True
        expectations = Expectations(self.history)
        return any(lacking(expectations, name) for name in expectations.subscribers())

    async def close(self) -> None:
        """Ends all clients."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        for client in self.clients:
            client.drop()
