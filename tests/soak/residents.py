"""Those who are there for the whole soak: publishers with counters, subscribers, groups.

Owns: their habits, and that each comes back after each end of a connection. Never: judges.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from random import Random

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message
from tests.soak.tally import Tally

PUBLISHERS = 6
BURST_MESSAGES = 10
PAUSE_S = 0.1
PADDING_BYTES = 1_000
STAYS_S = 3.0
"""The longest stay, and the longest absence, of those who come and go."""
AGAIN_AFTER_S = 0.05
FILTER = "soak/#"

SUBSCRIBERS: dict[str, tuple[ClientOptions, int]] = {
    "online-2": (ClientOptions(receive_maximum=50), 2),
    "online-1": (ClientOptions(protocol_version=4), 1),
    "passing-2": (ClientOptions(receive_maximum=100), 2),
    "passing-1": (ClientOptions(protocol_version=4), 1),
    "pausing-1": (ClientOptions(receive_maximum=50), 1),
    "online-app-2": (ClientOptions(receive_maximum=300), 2),
    "passing-app-1": (ClientOptions(protocol_version=4), 1),
    "pausing-app-2": (ClientOptions(receive_maximum=300), 2),
}
"""Name, how it behaves, and the QoS it subscribes with. The first part of the name is its habit."""

APPLICATIONS = "*-app-*"
"""Those of them that the broker is told are APPLICATION clients."""

GROUP_MEMBERS = ("online-member", "passing-member-1", "passing-member-2")
GROUP = "group"

PARTIES = {**{name: name for name in SUBSCRIBERS}, **dict.fromkeys(GROUP_MEMBERS, GROUP)}


class Residents:
    """All of them."""

    def __init__(self, host: str, port: int, tally: Tally, random: Random) -> None:
        self._address = (host, port)
        self._tally = tally
        self._random = random
        self._feeding = True
        self._wandering = True
        self._tasks: list[asyncio.Task[None]] = []
        self._publishers = [
            self._client(f"publisher-{n}", _publishes(n)) for n in range(PUBLISHERS)
        ]
        self._subscribers = {
            name: self._client(name, options) for name, (options, _) in SUBSCRIBERS.items()
        }
        self._members = {name: self._client(name, ClientOptions()) for name in GROUP_MEMBERS}

    def _client(self, name: str, options: ClientOptions) -> Client:
        return Client(name, self._tally, options, Random(self._random.getrandbits(63)))

    async def begin(self) -> None:
        """Everybody is subscribed; publishing begins."""
        for name, client in self._subscribers.items():
            await self._join(client, FILTER, SUBSCRIBERS[name][1])
        for client in self._members.values():
            await self._join(client, f"$share/{GROUP}/{FILTER}", 2)
        for client in (*self._subscribers.values(), *self._members.values()):
            self._start(self._attend(client, client.name.partition("-")[0]))
        for number, client in enumerate(self._publishers):
            self._start(self._attend(client, "online"))
            self._start(self._feed(client, qos=number % 3))

    async def _join(self, client: Client, topic_filter: str, qos: int) -> None:
        await client.connect(*self._address)
        await client.subscribe(topic_filter, qos)

    async def _attend(self, client: Client, habit: str) -> None:
        while True:
            try:
                if client.lost.is_set():
                    await client.connect(*self._address)
            except ConnectionFailedError:
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            if habit == "online" or not self._wandering:
                await client.lost.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0.01, STAYS_S)):
                    await client.lost.wait()
            leave, come = _WAYS[habit]
            self._random.choice(leave)(client)
            await asyncio.sleep(self._random.uniform(0.01, STAYS_S))
            come(client)

    async def _feed(self, client: Client, qos: int) -> None:
        topic = f"soak/{client.name}"
        message = Message(client.name, topic, 0, qos, padding_bytes=PADDING_BYTES)
        sequence = 0
        while self._feeding:
            for _ in range(BURST_MESSAGES):
                sequence += 1
                if qos:
                    self._tally.published(client.name, sequence)
                client.publish(replace(message, sequence=sequence))
            await client.idle.wait()
            await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_S))

    async def end(self, within_s: float) -> dict[str, int]:
        """Publishing ends; everybody comes and stays until all has arrived or time is up. Returns
        how many messages each party lacks."""
        self._feeding = self._wandering = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(client.idle.wait() for client in self._publishers))
                while self._tally.lacking():
                    self._tally.progress.clear()
                    await self._tally.progress.wait()
        return self._tally.lacking()

    async def close(self) -> None:
        """Ends all clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (*self._publishers, *self._subscribers.values(), *self._members.values()):
            client.disconnect()

    def _start(self, coroutine: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))


def _publishes(number: int) -> ClientOptions:
    return ClientOptions(protocol_version=5 if number % 2 else 4)


def _nothing(_client: Client) -> None:
    pass


_WAYS = {
    "passing": ((Client.drop, Client.disconnect), _nothing),
    "pausing": ((Client.pause,), Client.resume),
}
