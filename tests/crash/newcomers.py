"""Fresh subscriptions while the broker is killed: what a newcomer is greeted with.

Owns: the newcomers, and the question whether what a topic retains is the newest acknowledged
retained message or one sent after it.
Never: stays; each newcomer is another client.

It asks only topics with one publisher, whose order is known.
"""

import asyncio
import contextlib
from random import Random

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Acknowledged, Event, History, Message, Received, Sent

PAUSE_S = 0.1
LAST_TOPIC = "newcomer"
GIVEN_UP_AFTER_S = 60.0
REPLACED_WITHIN_S = 10.0


class Newcomers:
    """One newcomer after another."""

    def __init__(self, host: str, port: int, load: History) -> None:
        self.violations: list[str] = []
        self.greeted = 0
        """How many newcomers have seen all that is retained."""
        self._address = (host, port)
        self._load = load
        self._seen = 0
        self._acknowledged: dict[str, int] = {}
        """By topic: the newest retained message that was acknowledged."""
        self._sent: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """They come from now on."""
        self._task = asyncio.get_running_loop().create_task(self._come())

    async def close(self) -> None:
        """Nobody comes any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _come(self) -> None:
        number = 0
        while True:
            number += 1
            with contextlib.suppress(ConnectionFailedError, TimeoutError):
                async with asyncio.timeout(GIVEN_UP_AFTER_S):
                    await self.greet(f"newcomer-{number}")
            await asyncio.sleep(PAUSE_S)

    async def greet(self, name: str) -> None:
        """Subscribes, and judges what is retained. Raises `ConnectionFailedError`."""
        ended = asyncio.Event()

        def watch(event: Event) -> None:
            if isinstance(event, Received) and event.message.publisher == name:
                ended.set()

        history = History(watch=watch)
        options = ClientOptions(clean_start=True, session_expiry_interval_s=0, receive_maximum=500)
        client = Client(name, history, options, Random(0))
        await client.connect(*self._address)
        try:
            await client.subscribe(f"{LAST_TOPIC}/{name}", 1)
            self._catch_up()
            least = dict(self._acknowledged)
            await client.subscribe("load/#", 1)
            # What is retained comes before what is new.
            client.publish(Message(name, f"{LAST_TOPIC}/{name}", 1, qos=1))
            await _first(ended, client.lost)
            if ended.is_set():
                await self._see_what_was_replaced(client, history, least)
                if not _lacks(history, least) or not client.lost.is_set():
                    self._judge(name, history, least)
        finally:
            client.drop()

    async def _see_what_was_replaced(
        self, client: Client, history: History, least: dict[str, int]
    ) -> None:
        """What is replaced before it is looked up does not come; its successor comes as new, in its
        own place, which may be behind the newcomer's message."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLACED_WITHIN_S):
                # It is looked at often enough, and needs no event for each message.
                while _lacks(history, least) and not client.lost.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE_S)

    def _judge(self, name: str, history: History, least: dict[str, int]) -> None:
        self._catch_up()
        self.greeted += 1
        retained = _retained(history)
        for topic, newest in least.items():
            found = retained.get(topic, -1)
            if not newest <= found <= self._sent[topic]:
                self.violations.append(
                    f"{name} found number {found} retained in {topic}: {newest} was acknowledged,"
                    f" {self._sent[topic]} was the last one sent"
                )

    def _catch_up(self) -> None:
        events = self._load.events
        for event in events[self._seen :]:
            if isinstance(event, Sent | Acknowledged) and event.message.retain:
                known = self._sent if isinstance(event, Sent) else self._acknowledged
                topic = event.message.topic
                known[topic] = max(event.message.sequence, known.get(topic, -1))
        self._seen = len(events)


def _retained(history: History) -> dict[str, int]:
    return {
        event.message.topic: event.message.sequence
        for event in history.events
        if isinstance(event, Received) and (event.retain or event.message.retain)
    }


def _lacks(history: History, least: dict[str, int]) -> bool:
    retained = _retained(history)
    return any(retained.get(topic, -1) < newest for topic, newest in least.items())


async def _first(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    loop = asyncio.get_running_loop()
    waiting = [loop.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
