"""A publisher of a part: bursts of numbered messages until the stage is calm.

Owns: the numbers. Never: judges.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.equipment.clients import ClientOptions
from tests.equipment.history import Message
from tests.simulation.stage import KEEP_ALIVE_S, Stage


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How busy a publisher is."""

    burst_maximum: int = 6
    pause_s: float = 4.0
    messages_maximum: int = 150


class Publisher:
    """One client that publishes what `make` makes of a number, one burst after another."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        version: int,
        make: Callable[[str, int], Message],
        rhythm: Rhythm | None = None,
    ) -> None:
        options = ClientOptions(protocol_version=version, keep_alive_s=KEEP_ALIVE_S)
        self.client = stage.client(name, options)
        self._stage = stage
        self._make = make
        self._rhythm = rhythm or Rhythm()

    def begin(self) -> None:
        """Publishes from now on."""
        self._stage.start(self._stage.stay(self.client))
        self._stage.start(self._feed())

    async def _feed(self) -> None:
        rhythm, random = self._rhythm, self._stage.random
        number = 0
        while number < rhythm.messages_maximum:
            await self.client.idle.wait()
            # Whoever drains waits for the same, and looks only then for what has not arrived.
            if self._stage.calm:
                return
            for _ in range(random.randint(1, rhythm.burst_maximum)):
                number += 1
                self.client.publish(self._make(self.client.name, number))
            await self._stage.pause(0, rhythm.pause_s)
