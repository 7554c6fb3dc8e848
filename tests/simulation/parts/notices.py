"""Topics that retain, replace and remove, and newcomers who ask what is retained.

Owns: the topics, each with one publisher. Never: judges.
"""

import asyncio

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message, Received, RetainedAsked, RetainedRead
from tests.simulation.parts.publisher import Publisher, Rhythm
from tests.simulation.stage import KEEP_ALIVE_S, Stage

TOPICS = 3
ARRIVES_WITHIN_S = 60.0


class Notices:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        rhythm = Rhythm(burst_maximum=3, pause_s=6.0, messages_maximum=60)
        self._publishers = [
            Publisher(stage, f"board-{number}", 4 + number % 2, self._make, rhythm)
            for number in range(TOPICS)
        ]
        self._asked = 0

    def _make(self, name: str, sequence: int) -> Message:
        empty = self._stage.random.random() < 0.3
        # One QoS each: what is sent again at QoS 1 may be stored behind what came after it at
        # QoS 2, which is known already, and is then the last.
        qos = 1 + int(name[-1]) % 2
        return Message(name, f"notices/{name}", sequence, qos, retain=True, empty=empty)

    async def begin(self) -> None:
        for publisher in self._publishers:
            publisher.begin()
        self._stage.start(self._ask())

    async def end(self) -> None:
        for publisher in self._publishers:
            await publisher.client.idle.wait()
        await self._read()

    async def _ask(self) -> None:
        while not self._stage.calm:
            await self._stage.pause(1.0, 8.0)
            try:
                await self._read()
            except (ConnectionFailedError, TimeoutError):
                continue

    async def _read(self) -> None:
        """A newcomer subscribes; what is retained comes before what it then sends to itself."""
        self._asked += 1
        number, history = self._asked, self._stage.history
        name = f"newcomer-{number}"
        options = ClientOptions(
            clean_start=True, session_expiry_interval_s=0, keep_alive_s=KEEP_ALIVE_S
        )
        newcomer = self._stage.client(name, options)
        try:
            async with asyncio.timeout(ARRIVES_WITHIN_S):
                while not await self._stage.try_to_connect(newcomer):
                    if self._stage.calm:
                        continue
                    raise ConnectionFailedError(name)
                await self._greet(newcomer, number)
        finally:
            newcomer.drop()
            self._stage.clients.remove(newcomer)
        found = {
            event.message.topic: event.message
            for event in history.events
            if isinstance(event, Received) and event.subscriber == name and event.retain
        }
        for publisher in self._publishers:
            topic = f"notices/{publisher.client.name}"
            history.add(RetainedRead(topic, found.get(topic), number))

    async def _greet(self, newcomer: Client, number: int) -> None:
        greeting = f"greetings/{newcomer.name}"
        await newcomer.subscribe(greeting, 1)
        self._stage.history.add(RetainedAsked(number))
        await newcomer.subscribe("notices/#", 1)
        message = Message(newcomer.name, greeting, 1, qos=1)
        events = self._stage.history.events
        since = len(events)
        newcomer.publish(message)
        while not any(
            isinstance(event, Received) and event.message == message for event in events[since:]
        ):
            if newcomer.lost.is_set():
                raise ConnectionFailedError(newcomer.name)
            await asyncio.sleep(0.2)
