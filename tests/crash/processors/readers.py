"""Readers of tags that count their reads and publish them at QoS 2, and who takes dead letters.

Owns: which reads there have been, and which of them were broken: a broken one has to become a dead
letter in each environment.
"""

import asyncio
import json
from datetime import UTC, datetime
from random import Random

from holdfast import system
from holdfast.client.mqtt import Client, ClientOptions, ConnectionFailedError, Delivery, Publication
from tests.builders.tag_reads import read
from tests.journey.devices import Device

QOS = 2
BROKEN_EVERY = 40
READS = 4
READS_EVERY_S = 0.04
AGAIN_S = 0.1

Read = tuple[str, int]
"""A reader and the number of its read."""


class Reader(Device):
    """One reader: every so many reads it writes a time that is none."""

    def _publication(self, number: int) -> Publication:
        payload = read(self.host, number, datetime.fromtimestamp(system.now_us() / 1e6, UTC))
        if number % BROKEN_EVERY == 0:
            payload["timestamp"] = "yesterday"
        return Publication(self.topic, json.dumps(payload).encode(), QOS)


class Readers:
    """All readers, whose connections are cut now and then."""

    def __init__(self, count: int, random: Random) -> None:
        self.all = [Reader(number, Random(random.getrandbits(63))) for number in range(count)]
        self._random = random

    async def read(self) -> None:
        """Each publishes a few reads and a few again, until it is cancelled: whoever is killed is
        killed at work."""
        while True:
            for reader in self.all:
                reader.report(READS)
            await asyncio.sleep(READS_EVERY_S)

    def cut(self, share: float) -> None:
        """So many of them, by chance, lose their connection."""
        for reader in self.all:
            if self._random.random() < share:
                reader.drop()

    async def taken(self) -> None:
        """Returns when the broker has taken all."""
        for reader in self.all:
            await reader.idle.wait()

    def reads(self, *, broken: bool) -> set[Read]:
        """What belongs to the dead letters, or into a table."""
        return {
            (reader.host, number)
            for reader in self.all
            for number in range(1, reader.published + 1)
            if (number % BROKEN_EVERY == 0) is broken
        }


class DeadLetters(Client):
    """Takes the dead letters of one environment."""

    def __init__(self, environment: str) -> None:
        options = ClientOptions(clean_start=False, receive_maximum=100)
        super().__init__(f"judge-{environment}", options)
        self.topic = f"dead-letters/{environment}/ZebraRfid"
        self.found: set[Read] = set()

    def received(self, delivery: Delivery) -> None:
        """Notes which read it was."""
        said = json.loads(delivery.payload)["data"]
        self.found.add((said["hostName"], said["eventNum"]))
        self.acknowledge(delivery)

    async def stay(self, host: str, port: int) -> None:
        """Keeps itself connected, until it is cancelled."""
        while True:
            try:
                if not await self.connect(host, port):
                    await self.subscribe(self.topic, 1)
                await self.lost.wait()
            except ConnectionFailedError:
                pass
            await asyncio.sleep(AGAIN_S)
