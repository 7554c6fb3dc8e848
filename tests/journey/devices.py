"""Devices that count what they publish, and lose their connections.

Owns: what each device has published and what the broker has taken responsibility for. A device
that loses its power keeps what MQTT asks it to keep: its session and the messages that are not
complete.
"""

import asyncio
import json
from collections.abc import Iterable
from random import Random

from holdfast.client.mqtt import Client, ClientOptions, ConnectionFailedError, Publication

QOS = 2
PAYLOAD_BYTES = 600
"""Large enough that retention takes segments of a small log within a round."""
AWAY_S = (0.05, 0.4)
"""How long a device is away between two connections."""


class Device(Client):
    """One device: it publishes 1, 2, 3 and so on."""

    def __init__(self, number: int, random: Random) -> None:
        self.host = f"reader-{number:02}"
        super().__init__(self.host, ClientOptions(clean_start=False, in_flight_maximum=50))
        self.topic = f"zebra/fx/{number}/reads"
        self._random = random
        self.published = 0
        self.taken = 0
        self.refusals: list[int] = []

    def report(self, count: int) -> None:
        """Publishes the next messages, now or when it is connected again."""
        first = self.published + 1
        self.published += count
        self.publish(*map(self._publication, range(first, first + count)))

    def acknowledged(self, publication: Publication) -> None:
        """PUBCOMP came."""
        self.taken += 1

    def refused(self, publication: Publication, reason_code: int) -> None:
        """The broker does not take it: nothing here may make it say so."""
        self.refusals.append(reason_code)

    async def stay(self, host: str, port: int) -> None:
        """Keeps itself connected, until it is cancelled."""
        while True:
            try:
                await self.connect(host, port)
                await self.lost.wait()
            except ConnectionFailedError:
                pass
            await asyncio.sleep(self._random.uniform(*AWAY_S))

    def _publication(self, number: int) -> Publication:
        reading = {"host": self.host, "number": number, "filling": "x" * PAYLOAD_BYTES}
        return Publication(self.topic, json.dumps(reading).encode(), QOS)


class Devices:
    """All devices, each with its own pace of losing its connection."""

    def __init__(self, count: int, random: Random) -> None:
        self.all = [Device(number, random) for number in range(count)]
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, host: str, port: int) -> None:
        """Keeps them connected from now on."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(device.stay(host, port)) for device in self.all]

    def report(self, count: int) -> None:
        """Each publishes so many."""
        for device in self.all:
            device.report(count)

    def cut(self, share: float) -> int:
        """So many of them, by chance, lose their connection without a word; returns how many."""
        chosen = [device for device in self.all if self._random.random() < share]
        for device in chosen:
            device.drop()
        return len(chosen)

    def waiting(self) -> int:
        """Messages that no PUBCOMP has come for."""
        return sum(device.waiting() for device in self.all)

    async def taken(self) -> None:
        """Returns when the broker has taken all."""
        for device in self.all:
            await device.idle.wait()

    def published(self) -> dict[str, int]:
        """How many messages each has published."""
        return {device.topic: device.published for device in self.all}

    def refusals(self) -> Iterable[int]:
        """Reason codes with which the broker refused messages."""
        return [code for device in self.all for code in device.refusals]

    async def close(self) -> None:
        """They leave for good."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for device in self.all:
            device.disconnect()
