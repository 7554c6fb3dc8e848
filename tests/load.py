"""Clients that keep a broker busy while everything fails, and remember what they saw.

Owns: publishers with counters, and subscribers of every kind: always there, coming and going,
slow, away to the end.
Never: judges.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from random import Random

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Event, History, Message, Received, Refused, Sent

TOPICS_EACH = 2


@dataclass(frozen=True, slots=True)
class Pace:
    """How busy the clients are, and how patient."""

    publishers: int = 6
    burst_messages_maximum: int = 60
    pause_s: float = 0.0
    """The longest pause of a publisher between bursts."""
    stays_s: float = 0.5
    """The longest stay, and the longest absence, of those who come and go."""
    again_after_s: float = 0.02
    """How long a client waits after a connection failed."""
    drained_within_s: float = 180.0
    """When the faults have stopped, everything has arrived after this time."""
    keep_alive_s: int = 30


SUBSCRIBERS: dict[str, tuple[ClientOptions, int]] = {
    "online-2": (ClientOptions(receive_maximum=50), 2),
    "online-1": (ClientOptions(protocol_version=4), 1),
    "passing-2": (ClientOptions(receive_maximum=10), 2),
    "passing-1": (ClientOptions(receive_maximum=7), 1),
    "slow-2": (ClientOptions(receive_maximum=5, answer_after_s=0.001), 2),
    "away-2": (ClientOptions(receive_maximum=1_000), 2),
    "away-1": (ClientOptions(protocol_version=4), 1),
    "online-app-2": (ClientOptions(receive_maximum=300), 2),
    "passing-app-2": (ClientOptions(receive_maximum=300), 2),
    "slow-app-1": (ClientOptions(protocol_version=4, answer_after_s=0.001), 1),
    "away-app-2": (ClientOptions(receive_maximum=1_000), 2),
}
"""Name, how it behaves, and the QoS it subscribes with. The first part of the name is its habit."""

APPLICATIONS = "*-app-*"
"""Those of them that a broker may be told are APPLICATION clients."""


class Load:
    """All clients of one run."""

    def __init__(self, host: str, port: int, random: Random, pace: Pace) -> None:
        self.history = History(watch=self._watch)
        self.sent = 0
        self.refused = 0
        self._address = (host, port)
        self._random = random
        self._pace = pace
        self._got: dict[str, set[Message]] = defaultdict(set)
        self._progress = asyncio.Event()
        self._allowed = 0
        self._may_publish = asyncio.Event()
        self._feeding = True
        self._attending = True
        self._tasks: list[asyncio.Task[None]] = []
        self.publishers = [self._publisher(number) for number in range(pace.publishers)]
        self.subscribers = {
            name: self._client(name, options) for name, (options, _) in SUBSCRIBERS.items()
        }

    def _publisher(self, number: int) -> Client:
        version = 5 if number % 2 else 4
        return self._client(f"publisher-{number}", ClientOptions(protocol_version=version))

    def _client(self, name: str, options: ClientOptions) -> Client:
        options = replace(options, keep_alive_s=self._pace.keep_alive_s)
        return Client(name, self.history, options, Random(self._random.getrandbits(63)))

    def _watch(self, event: Event) -> None:
        if isinstance(event, Received) and not event.retain:
            self._got[event.subscriber].add(event.message)
            self._progress.set()
        elif isinstance(event, Refused):
            self.refused += 1
        elif isinstance(event, Sent):
            self.sent += 1
            if self.sent >= self._allowed:
                self._may_publish.clear()

    async def begin(self) -> None:
        """Every session exists and is subscribed; those who are away leave; publishing begins."""
        for name, client in self.subscribers.items():
            await self._subscribe(client, SUBSCRIBERS[name][1])
            if name.startswith("away"):
                client.disconnect()
                await client.lost.wait()
            elif name.startswith("passing"):
                self._start(self._pass_by(client))
            else:
                self._start(self._stay(client))
        for number, client in enumerate(self.publishers):
            self._start(self._stay(client))
            self._start(self._feed(client, qos=1 + number % 2))

    async def _subscribe(self, client: Client, qos: int) -> None:
        """Connects and subscribes, however often that takes."""
        while True:
            if await self._is_connected(client):
                with contextlib.suppress(ConnectionFailedError):
                    await client.subscribe("load/#", qos)
                    return

    def allow(self, messages: int) -> None:
        """So many messages more may be published; those who are away must not be owed more than a
        queue holds."""
        self._allowed += messages
        self._may_publish.set()

    async def end(self) -> dict[str, int]:
        """Publishing ends; everybody comes and stays until all is there or time is up. Returns how
        many messages each subscriber still lacks."""
        self._feeding = False
        async with asyncio.timeout(self._pace.drained_within_s):
            for client in self.publishers:
                await client.idle.wait()
        self._attending = False
        for name, client in self.subscribers.items():
            client.hurry()
            if name.startswith("away"):
                self._start(self._stay(client))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.drained_within_s):
                while self._lacking():
                    self._progress.clear()
                    await self._progress.wait()
        return self._lacking()

    def _lacking(self) -> dict[str, int]:
        taken = self.sent - self.refused
        lacking = {name: taken - len(self._got[name]) for name in self.subscribers}
        return {name: count for name, count in lacking.items() if count > 0}

    async def close(self) -> None:
        """Ends all clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in [*self.publishers, *self.subscribers.values()]:
            client.drop()

    async def read_retained(self) -> dict[str, Message]:
        """What a newcomer is greeted with, by topic."""
        arrived = asyncio.Event()

        def watch(event: Event) -> None:
            if isinstance(event, Received) and event.message.publisher == "newcomer":
                arrived.set()

        history = History(watch=watch)
        options = ClientOptions(clean_start=True, session_expiry_interval_s=0)
        newcomer = Client("newcomer", history, options, Random(0))
        await newcomer.connect(*self._address)
        await newcomer.subscribe("newcomer", 1)
        await newcomer.subscribe("load/#", 1)
        # What was retained comes before what is new.
        newcomer.publish(Message("newcomer", "newcomer", 1, qos=1))
        async with asyncio.timeout(self._pace.drained_within_s):
            await arrived.wait()
        newcomer.disconnect()
        received = [event for event in history.events if isinstance(event, Received)]
        return {event.message.topic: event.message for event in received if event.retain}

    async def _stay(self, client: Client) -> None:
        """Connected whenever that is possible."""
        while True:
            if await self._is_connected(client):
                await client.lost.wait()

    async def _pass_by(self, client: Client) -> None:
        """Connected for a while, away for a while, with and without a word; stays in the end."""
        while self._attending:
            if not await self._is_connected(client):
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0.01, self._pace.stays_s)):
                    await client.lost.wait()
            leave = self._random.choice((client.drop, client.disconnect))
            leave()
            await asyncio.sleep(self._random.uniform(0.01, self._pace.stays_s))
        await self._stay(client)

    async def _is_connected(self, client: Client) -> bool:
        """Tries to be; waits a little where that fails."""
        if not client.lost.is_set():
            return True
        try:
            await client.connect(*self._address)
        except ConnectionFailedError:
            await asyncio.sleep(self._pace.again_after_s)
            return False
        return True

    async def _feed(self, client: Client, qos: int) -> None:
        """One burst after another; the next begins when all of the last is acknowledged."""
        topics = [f"load/{client.name}/{number}" for number in range(TOPICS_EACH)]
        sequence = 0
        template = Message(client.name, "", 0, qos)
        while self._feeding:
            await client.idle.wait()
            await self._may_publish.wait()
            for _ in range(self._random.randint(1, self._pace.burst_messages_maximum)):
                sequence += 1
                topic = self._random.choice(topics)
                retain = topic == topics[0] and self._random.random() < 0.2
                padding_bytes = self._random.choice((0, 10, 100, 2_000))
                client.publish(
                    replace(
                        template,
                        topic=topic,
                        sequence=sequence,
                        retain=retain,
                        padding_bytes=padding_bytes,
                    )
                )
            await asyncio.sleep(self._random.uniform(0, self._pace.pause_s))

    def _start(self, coroutine: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))
