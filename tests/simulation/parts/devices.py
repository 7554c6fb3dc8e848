"""Devices on one topic that services use too: publishers, and panels that come and go.

Owns: what devices do there. Never: judges; what they saw is in the stage's history.
"""

from collections.abc import Callable
from random import Random

from tests.equipment.clients import Client, ClientOptions
from tests.equipment.history import Message
from tests.simulation.parts.publisher import Publisher
from tests.simulation.stage import KEEP_ALIVE_S, Stage

PUBLISHERS = 2
"""One at QoS 1 and one at QoS 2."""
PANELS = 3
"""One for each QoS that a subscription may have."""
LASTING_S = 86_400


class Devices:
    """All of them."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.made: set[Message] = set()
        """What they have published, or will next."""
        self._stage = stage
        self._topic = topic
        random = stage.random
        self._publishers = [
            Publisher(stage, f"device-{number}", random.choice((3, 4, 5)), self._maker(1 + number))
            for number in range(PUBLISHERS)
        ]
        self._panels = [
            stage.client(f"panel-{number}", _options(random)) for number in range(PANELS)
        ]

    def begin(self) -> None:
        """They publish and listen from now on."""
        for qos, panel in enumerate(self._panels):
            self._stage.start(self._listen(panel, qos))
        for publisher in self._publishers:
            publisher.begin()

    def end(self) -> None:
        """Panels answer everything, and at once."""
        for panel in self._panels:
            panel.hurry()

    def is_publishing(self) -> bool:
        """True if something of theirs is not acknowledged."""
        return not all(publisher.client.idle.is_set() for publisher in self._publishers)

    def _maker(self, qos: int) -> Callable[[str, int], Message]:
        def make(name: str, number: int) -> Message:
            message = Message(name, self._topic, number, qos)
            self.made.add(message)
            return message

        return make

    async def _listen(self, panel: Client, qos: int) -> None:
        stage, random = self._stage, self._stage.random
        await stage.subscribe(panel, self._topic, qos)
        while not stage.calm:
            await stage.pause(0.5, 10.0)
            await (stage.leave(panel) if random.random() < 0.5 else stage.drop(panel))
            await stage.pause(0.0, random.choice((2.0, 20.0)))
            await stage.try_to_connect(panel)
        await stage.stay(panel)


def _options(random: Random) -> ClientOptions:
    """A session that is kept: what is acknowledged while it is away is owed to it."""
    return ClientOptions(
        protocol_version=random.choice((3, 4, 5)),
        clean_start=False,
        session_expiry_interval_s=LASTING_S,
        keep_alive_s=KEEP_ALIVE_S,
        receive_maximum=random.choice((1, 3, 20)),
    )
