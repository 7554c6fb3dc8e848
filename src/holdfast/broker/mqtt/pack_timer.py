"""When packs are looked at: as soon as the time of the first one may be over.

Owns: one timer for all packs. Never: decides what becomes of them; `packs` does.

Seconds are too coarse here: a pack may have one second, and a round that takes two is another
setting than the operator's.
"""

import asyncio

from holdfast.broker.mqtt.packs import Packs
from holdfast.broker.schedule import Schedule
from holdfast.broker.steps import Steps
from holdfast.broker.world import World
from holdfast.core.units import SECOND_US


class PackTimer:
    """Lets packs be decided about in time."""

    def __init__(self, packs: Packs, schedule: Schedule, steps: Steps, world: World) -> None:
        self._packs = packs
        self._schedule = schedule
        self._steps = steps
        self._now_us = world.now_us
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Looks at packs from now on."""
        wait_s = self._packs.wait_us(self._now_us()) / SECOND_US
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def stop(self) -> None:
        """Looks at them no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        try:
            began_ns = self._steps.ticks_ns()
            if self._packs.decide(self._now_us()):
                self._schedule.soon()
            self._steps.ended("sweep", "packs", self._steps.ticks_ns() - began_ns)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing below it may go on.
            self._schedule.fail(error)
            return
        self.start()
