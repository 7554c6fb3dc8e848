"""Persistent APPLICATION clients with every habit of answering: at once, late, in part, never.

Owns: which habits a service draws. Never: judges.
"""

import contextlib
from random import Random

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message
from tests.simulation.parts.publisher import Publisher, Rhythm
from tests.simulation.stage import KEEP_ALIVE_S, Stage

FEEDS = 2
SERVICES = 4
LASTING_S = 86_400


class Services:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        random = stage.random
        rhythm = Rhythm(burst_maximum=25, pause_s=6.0, messages_maximum=150)
        self._feeds = [
            Publisher(stage, f"feed-{number}", 4 + number % 2, self._make, rhythm)
            for number in range(FEEDS)
        ]
        self._services = [
            (stage.client(f"service-{number}", _options(random)), random.random() < 0.5)
            for number in range(SERVICES)
        ]

    def _make(self, name: str, sequence: int) -> Message:
        qos = self._stage.random.choice((0, 1, 2, 2))
        return Message(name, f"feeds/{name}", sequence, qos)

    async def begin(self) -> None:
        for client, comes_and_goes in self._services:
            self._stage.start(self._serve(client, comes_and_goes=comes_and_goes))
        for feed in self._feeds:
            feed.begin()

    async def end(self) -> None:
        for client, _ in self._services:
            client.hurry()

    async def _serve(self, client: Client, *, comes_and_goes: bool) -> None:
        stage, random = self._stage, self._stage.random
        qos = random.choice((1, 2, 2))
        while not stage.calm:
            if not await stage.try_to_connect(client):
                continue
            with contextlib.suppress(ConnectionFailedError):
                await client.subscribe("feeds/#", qos)
            await stage.pause(0.1, 20.0)
            match random.choice(("stay", "leave", "drop", "stop reading", "take over")):
                case "leave" if comes_and_goes:
                    await stage.leave(client)
                    await stage.pause(0.0, random.choice((3.0, 30.0)))
                case "drop" if comes_and_goes:
                    await stage.drop(client)
                    await stage.pause(0.0, random.choice((3.0, 30.0)))
                case "stop reading":
                    client.pause()
                    await stage.pause(0.5, random.choice((4.0, 20.0)))
                    client.resume()
                case "take over":
                    await stage.take_over(client)
        client.resume()
        await stage.stay(client)


def _options(random: Random) -> ClientOptions:
    return ClientOptions(
        protocol_version=random.choice((3, 4, 4, 5, 5)),
        session_expiry_interval_s=LASTING_S,
        keep_alive_s=KEEP_ALIVE_S,
        receive_maximum=random.choice((1, 3, 20, 300)),
        answer_after_s=random.choice((0.0, 0.0, 0.05, 1.0)),
        answers_share=random.choice((1.0, 1.0, 0.9, 0.5, 0.0)),
    )
