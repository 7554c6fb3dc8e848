"""What can be done with dead letters: looked at, and sent back to where they came from.

Owns: one visit to the session that keeps them. Never: takes a letter that nobody has asked to send
back; what it only looks at stays the broker's.

Invariants:
1. A letter is acknowledged after the broker has the message that it was made of.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from holdfast.client.mqtt import Client, ConnectionFailedError, Delivery, Publication
from holdfast.processors.poison import (
    DeadLetter,
    LetterRefusedError,
    keeper_name,
    keeper_options,
    publication_of,
    read_letter,
)
from holdfast.processors.session import FAILED
from holdfast.processors.settings import ProcessorSettings
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name

MARK: Final = "dead-letter-mark"
"""A user property of a message that is published to the topic to know when all before it has come:
within a topic, messages come in their order [MQTT-4.6.0-5]."""
MARKED_WITHIN_S: Final = 30.0


async def read_letters(settings: ProcessorSettings) -> list[tuple[int, DeadLetter]]:
    """The dead letters of a processor with their numbers, in the order in which they became such.
    They stay where they are. Raises `ConnectionFailedError`."""
    async with _visit(settings) as visit:
        return [(number, letter) for number, (letter, _) in enumerate(visit.letters, 1)]


async def drive_letters(
    settings: ProcessorSettings, wanted: Collection[int] | None
) -> list[DeadLetter]:
    """Publishes dead letters to the topics that they came from, and takes them out of the session;
    by their numbers, or all of them with None. Returns those that were sent. Raises
    `ConnectionFailedError`, or `LetterRefusedError` where the broker takes one not."""
    async with _visit(settings) as visit:
        chosen = [
            found
            for number, found in enumerate(visit.letters, 1)
            if wanted is None or number in wanted
        ]
        for letter, delivery in chosen:
            await visit.send_back(letter, delivery)
        return [letter for letter, _ in chosen]


class _Visit(Client):
    """The keeper's session, while somebody looks at it."""

    def __init__(self, settings: ProcessorSettings) -> None:
        super().__init__(keeper_name(settings), keeper_options(settings))
        self.letters: list[tuple[DeadLetter, Delivery]] = []
        self.marked = asyncio.Event()
        self._answer: int | None = None
        self._answered = asyncio.Event()
        self._mark = ""

    async def mark(self, topic: str) -> None:
        """Returns when all that was there has come, or no more can be open at a time."""
        self._mark = f"{self.name}-{self._connection}"
        properties: dict[str, Any] = {"user_property": [(MARK, self._mark)]}
        await self._publish(Publication(topic, b"", qos=1, properties=properties))
        with suppress(TimeoutError):
            async with asyncio.timeout(MARKED_WITHIN_S):
                await self.marked.wait()

    async def send_back(self, letter: DeadLetter, delivery: Delivery) -> None:
        """It is where it came from, and here no more."""
        await self._publish(publication_of(letter))
        self.acknowledge(delivery)

    async def _publish(self, publication: Publication) -> None:
        self._answer = None
        self._answered.clear()
        self.publish(publication)
        await self._answered.wait()
        if self._answer is None:
            raise ConnectionFailedError(f"{self.name}: the connection has ended")
        if self._answer >= FAILED:
            reason = reason_name(self._answer)
            raise LetterRefusedError(f"the broker does not take {publication.topic_name}: {reason}")

    def received(self, delivery: Delivery) -> None:
        """A letter is kept unacknowledged; a mark, and what is no letter, is taken away."""
        letter = read_letter(delivery.payload, delivery.properties)
        if letter is not None:
            self.letters.append((letter, delivery))
            return
        self.acknowledge(delivery)
        if (MARK, self._mark) in delivery.properties.get("user_property", ()):
            self.marked.set()

    def acknowledged(self, publication: Publication) -> None:
        """Told to whoever sends."""
        self._answer = ReasonCode.SUCCESS
        self._answered.set()

    def refused(self, publication: Publication, reason_code: int) -> None:
        """Told to whoever sends."""
        self._answer = reason_code
        self._answered.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for an answer any more."""
        super().connection_lost(exc)
        self._answered.set()
        self.marked.set()


@asynccontextmanager
async def _visit(settings: ProcessorSettings) -> AsyncIterator[_Visit]:
    visit = _Visit(settings)
    await visit.connect(settings.broker_host, settings.broker_port)
    try:
        (code,) = await visit.subscribe_all((settings.dead_letters,), 1)
        if code >= FAILED:
            raise LetterRefusedError(
                f"the broker refuses {settings.dead_letters}: {reason_name(code)}"
            )
        await visit.mark(settings.dead_letters)
        yield visit
    finally:
        visit.disconnect()
        await visit.lost.wait()
