"""Work that groups of shared subscriptions divide, with members who join, leave, stall and die.

Owns: who is a member when. Never: judges.

One member of each group has a session that lasts, so that the group does.
"""

import contextlib

from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message
from tests.simulation.parts.publisher import Publisher
from tests.simulation.stage import KEEP_ALIVE_S, Stage

GROUPS = {"$share/exactly/jobs/#": 2, "$share/at-least/jobs/#": 1}
MEMBERS = 3
PUBLISHERS = 2
LASTING_S = 86_400
SHORT_S = 10


class Work:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._expiries_s = stage.random.choice(((LASTING_S,), (LASTING_S, SHORT_S)))
        self._members = [
            (self._member(name, number), name, qos)
            for name, qos in GROUPS.items()
            for number in range(MEMBERS)
        ]
        self._publishers = [
            Publisher(stage, f"employer-{number}", 5, self._make) for number in range(PUBLISHERS)
        ]

    def _member(self, group: str, number: int) -> Client:
        random = self._stage.random
        options = ClientOptions(
            keep_alive_s=KEEP_ALIVE_S,
            session_expiry_interval_s=random.choice(self._expiries_s) if number else LASTING_S,
            receive_maximum=random.choice((1, 3, 20)),
            answer_after_s=random.choice((0.0, 0.0, 0.05)),
        )
        return self._stage.client(f"{group.split('/')[1]}-{number}", options)

    def _make(self, name: str, sequence: int) -> Message:
        qos = 2 if name.endswith("0") else self._stage.random.randint(1, 2)
        return Message(name, f"jobs/{name}", sequence, qos)

    async def begin(self) -> None:
        for client, group, qos in self._members:
            if client.name.endswith("-0"):
                await self._stage.subscribe(client, group, qos)
        for client, group, qos in self._members:
            self._stage.start(self._toil(client, group, qos))
        for publisher in self._publishers:
            publisher.begin()

    async def end(self) -> None:
        for client, _, _ in self._members:
            client.hurry()

    async def _toil(self, client: Client, group: str, qos: int) -> None:
        stage, random = self._stage, self._stage.random
        while not stage.calm:
            if not await stage.try_to_connect(client):
                continue
            with contextlib.suppress(ConnectionFailedError):
                await client.subscribe(group, qos)
            await stage.pause(0.1, 5.0)
            match random.choice(("stay", "leave", "drop", "stall", "quit", "take over")):
                case "leave":
                    await stage.leave(client)
                    await stage.pause(0.0, random.choice((3.0, 30.0)))
                case "drop":
                    await stage.drop(client)
                    await stage.pause(0.0, random.choice((3.0, 30.0)))
                case "stall":
                    client.pause()
                    await stage.pause(0.5, 4.0)
                    client.resume()
                case "quit" if not client.name.endswith("-0") and not client.lost.is_set():
                    with contextlib.suppress(ConnectionFailedError):
                        await client.unsubscribe(group)
                    await stage.pause(0.0, 3.0)
                case "take over":
                    await stage.take_over(client)
        client.resume()
        await stage.stay(client)
