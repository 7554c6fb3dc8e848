"""Publishers of every QoS and version, and listeners with every habit there is.

Owns: which traits a listener draws. Never: judges.
"""

import contextlib
from dataclasses import dataclass
from random import Random

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message
from tests.simulation.parts.publisher import Publisher
from tests.simulation.stage import KEEP_ALIVE_S, Stage

PUBLISHERS = 4
LISTENERS = 7
FILTERS = ("talk/#", "talk/+/even", "talk/talker-1/#", "talk/talker-2/odd")
LASTING_S = 86_400
SMALL_PACKET_BYTES = 500
"""What some listeners take; a message of `LARGE_BYTES` is too large for them."""

LARGE_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class _Habits:
    qos: int
    takes_over: bool
    changes_mind: bool
    stalls: bool
    comes_and_goes: bool


class Talk:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        random = stage.random
        # What is slow to arrive would look as if it had expired; and a clock set back over a
        # restart lets what is sent soon after it live longer by that much.
        uncertain = stage.hardships.slow_link_bytes_per_s or stage.hardships.clock_step_after_s
        self._expiries_s = (0, 0, 3_600) if uncertain else (0, 0, 1, 5, 3_600)
        self._sizes = (0, 100, LARGE_BYTES) if random.random() < 0.5 else (0, 100)
        self._publishers = [self._talker(number) for number in range(PUBLISHERS)]
        self._listeners = [
            (stage.client(f"listener-{number}", _options(random)), _habits(random))
            for number in range(LISTENERS)
        ]

    def _talker(self, number: int) -> Publisher:
        random = self._stage.random
        qos, version = number % 3, random.choice((3, 4, 5, 5))

        def make(name: str, sequence: int) -> Message:
            topic = f"talk/{name}/{'odd' if sequence % 2 else 'even'}"
            expiry_s = random.choice(self._expiries_s) if version == 5 else 0
            size = random.choice(self._sizes)
            return Message(name, topic, sequence, qos, padding_bytes=size, expiry_s=expiry_s)

        return Publisher(self._stage, f"talker-{number}", version, make)

    async def begin(self) -> None:
        for client, habits in self._listeners:
            self._stage.start(self._listen(client, habits))
        for publisher in self._publishers:
            publisher.begin()

    async def end(self) -> None:
        for client, _ in self._listeners:
            client.hurry()

    async def _listen(self, client: Client, habits: _Habits) -> None:
        stage, random = self._stage, self._stage.random
        filters = random.sample(FILTERS, random.randint(1, 2))
        while not stage.calm:
            if not await stage.try_to_connect(client):
                continue
            with contextlib.suppress(ConnectionFailedError):
                await client.subscribe(random.choice(filters), habits.qos)
            await stage.pause(0.1, 5.0)
            await self._act(client, habits, filters)
        client.resume()
        await stage.stay(client)

    async def _act(self, client: Client, habits: _Habits, filters: list[str]) -> None:
        stage, random = self._stage, self._stage.random
        if habits.takes_over and random.random() < 0.3:
            await stage.take_over(client)
        if habits.changes_mind and random.random() < 0.3 and not client.lost.is_set():
            with contextlib.suppress(ConnectionFailedError):
                await client.unsubscribe(random.choice(filters))
        if habits.stalls and random.random() < 0.3:
            client.pause()
            await stage.pause(0.5, 4.0)
            client.resume()
        if habits.comes_and_goes and random.random() < 0.4:
            await (stage.leave(client) if random.random() < 0.5 else stage.drop(client))
            await stage.pause(0.0, random.choice((2.0, 10.0, 40.0)))


def _options(random: Random) -> ClientOptions:
    version = random.choice((3, 4, 5, 5, 5))
    kind = random.choice(("lasting", "lasting", "short", "clean"))
    expiry_s = {"lasting": LASTING_S, "short": random.choice((2, 15, 40)), "clean": 0}[kind]
    if version < 5:
        expiry_s = 0 if kind == "clean" else LASTING_S
    return ClientOptions(
        protocol_version=version,
        clean_start=kind == "clean",
        session_expiry_interval_s=expiry_s,
        keep_alive_s=KEEP_ALIVE_S,
        receive_maximum=random.choice((1, 2, 3, 20)),
        answer_after_s=random.choice((0.0, 0.0, 0.05)),
        topic_alias_maximum=random.choice((0, 1, 10)),
        packet_bytes_maximum=random.choice((0, 0, SMALL_PACKET_BYTES)),
    )


def _habits(random: Random) -> _Habits:
    return _Habits(
        qos=random.randint(0, 2),
        takes_over=random.random() < 0.5,
        changes_mind=random.random() < 0.5,
        stalls=random.random() < 0.5,
        comes_and_goes=random.random() < 0.5,
    )
