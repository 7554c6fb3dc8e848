"""What can be done to bridges from outside: make, change, remove, start, stop.

Owns: what may be done to which, and the order of the steps of each. Never: connects.

Invariants:
1. A command that is answered is durable; that one runs or rests is not: the next start begins with
   `enabled`.
2. What cannot be done raises a `CommandRefusedError` with its reason, and has changed nothing.
3. A bridge that stands in the configuration is changed there.

Flow: admin -> here -> bridge.bridges.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from holdfast.broker.bridge.bridges import BRIDGES_MAXIMUM
from holdfast.broker.bridge.review import doubts, parse_checked
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.turn import Stages
from holdfast.core.bridge import HIDDEN, Bridge
from holdfast.core.errors import ConfigurationError

log = logging.getLogger(__name__)

IN_FILE: Final = (
    "the bridge {name!r} stands in the configuration file: change or remove its table [[bridge]]"
    " there, and start the broker anew; here it can be stopped and started"
)


class BridgeCommands:
    """Carries them out."""

    def __init__(self, stages: Stages, now_us: Callable[[], int]) -> None:
        self._stages = stages
        self._bridges = stages.bridges
        self._now_us = now_us

    async def make(self, bridge: Bridge) -> None:
        """There is such a bridge from now on."""
        name = bridge.name
        if self._bridges.find(name) is not None:
            sentence = f"there is a bridge {name!r} already; change that one or take another name"
            raise CommandRefusedError(Refusal.NAME_TAKEN, sentence)
        if len(self._bridges.names()) >= BRIDGES_MAXIMUM:
            sentence = f"there are {BRIDGES_MAXIMUM} bridges; remove those that nobody needs"
            raise CommandRefusedError(Refusal.TOO_MANY, sentence)
        await self._put(self.checked(bridge), "bridge made")

    async def change(self, bridge: Bridge) -> None:
        """The bridge of this name is this one from now on, and goes on where it was."""
        before = self._changeable(bridge.name)
        if bridge.password == HIDDEN:
            bridge = replace(bridge, password=before.password)
        await self._put(self.checked(bridge), "bridge changed")

    async def remove(self, name: str) -> None:
        """It is gone, and what waited for its remote is lost."""
        self._changeable(name)
        await self._durable(self._bridges.remove(name, self._now_us()))
        log.info("bridge removed", extra={"fields": {"bridge": name}})

    def run(self, name: str, *, is_running: bool) -> None:
        """Starts or stops it until the broker starts anew."""
        self.find(name)
        self._bridges.run(name, is_running, self._now_us())

    def find(self, name: str) -> Bridge:
        """One bridge; refused if there is none."""
        found = self._bridges.find(name)
        if found is None:
            sentence = f"no bridge is called {name!r}: it was never made, or it has been removed"
            raise CommandRefusedError(Refusal.NO_SUCH_BRIDGE, sentence)
        return found[0]

    @staticmethod
    def doubts(bridge: Bridge) -> tuple[str, ...]:
        """What is allowed, and may not be what was meant."""
        return doubts(bridge)

    @staticmethod
    def checked(bridge: Bridge) -> Bridge:
        """A bridge that can be carried out; refused if it cannot."""
        try:
            return parse_checked(to_builtins(bridge), "the bridge")
        except ConfigurationError as error:
            raise CommandRefusedError(Refusal.WRONG_BRIDGE, str(error)) from error

    def _changeable(self, name: str) -> Bridge:
        self.find(name)
        found = self._bridges.find(name)
        assert found is not None, "it was found"
        bridge, is_configured, _ = found
        if is_configured:
            raise CommandRefusedError(Refusal.IN_FILE, IN_FILE.format(name=name))
        return bridge

    async def _put(self, bridge: Bridge, what: str) -> None:
        position = self._bridges.put(bridge, self._now_us())
        await self._durable(position)
        log.info(what, extra={"fields": {"bridge": bridge.name, "remote": bridge.address}})

    async def _durable(self, position: int) -> None:
        await self._stages.promises.wait_durable(position)
