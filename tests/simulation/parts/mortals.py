"""Clients with a Will, who go in every way there is, and somebody who watches.

Owns: how they live and go. Never: judges.
"""

import asyncio

from tests.equipment.clients import Client, ClientOptions
from tests.equipment.history import Message
from tests.simulation.stage import KEEP_ALIVE_S, Stage

DELAYS_S = (0, 0, 3, 20, 40)
EXPIRIES_S = (0, 5, 60, 86_400)
MORTALS = 5
DISCONNECT_WITH_WILL = 0x04
LONGEST_LIFE_S = 60.0
OWED_WITHIN_S = 120.0
"""When the last have gone, their Wills are out after this time: the longest delay, a silent
connection, and what the checker allows."""


class Mortals:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._watcher = stage.client("watcher", ClientOptions(keep_alive_s=KEEP_ALIVE_S))
        self._mortals = [self._mortal(number) for number in range(MORTALS)]

    def _mortal(self, number: int) -> Client:
        random = self._stage.random
        expiry_s = random.choice(EXPIRIES_S)
        # Clean Start 0 and no expiry would be kept, unless the operator is strict.
        clean_start = not expiry_s or random.random() < 0.2
        options = ClientOptions(
            keep_alive_s=KEEP_ALIVE_S,
            session_expiry_interval_s=expiry_s,
            clean_start=clean_start,
        )
        return self._stage.client(f"mortal-{number}", options)

    async def begin(self) -> None:
        await self._stage.subscribe(self._watcher, "wills/#", 1)
        self._stage.start(self._stage.stay(self._watcher))
        for client in self._mortals:
            self._stage.start(self._live(client))

    async def end(self) -> None:
        await asyncio.sleep(LONGEST_LIFE_S)
        for client in self._mortals:
            client.drop()
        await asyncio.sleep(OWED_WITHIN_S)

    async def _live(self, client: Client) -> None:
        """One life after another; each attempt to connect has a Will of its own."""
        stage, random = self._stage, self._stage.random
        delay_s = random.choice(DELAYS_S)
        lives = 0
        while not stage.calm:
            lives += 1
            client.will_delay_s = delay_s
            topic = f"wills/{client.name}"
            if stage.hardships.clock_step_after_s:
                # Those that wait for room come in the order of their times, which go back.
                topic += f"/{lives}"
            client.will = Message(client.name, topic, lives, random.randint(1, 2))
            if client.lost.is_set():
                if not await stage.try_to_connect(client):
                    continue
            else:
                await stage.take_over(client)
            await stage.pause(0.2, 8.0)
            match random.choice(("leave", "drop", "drop", "say", "take over")):
                case "leave":
                    await stage.leave(client)
                case "drop":
                    await stage.drop(client)
                case "say":
                    await stage.leave(client, DISCONNECT_WITH_WILL)
                case _:
                    continue
            await stage.pause(0.0, random.choice((1.0, 30.0)))
