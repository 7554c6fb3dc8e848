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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from holdfast.broker.bridge import terms
from holdfast.broker.bridge.asking import divided
from holdfast.broker.bridge.bridges import BRIDGES_MAXIMUM
from holdfast.broker.bridge.review import doubts, parse_checked
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.turn import Stages
from holdfast.core.bridge import HIDDEN, Bridge
from holdfast.core.errors import ConfigurationError
from holdfast.protocols.mqtt.remote import Granted, Refused

log = logging.getLogger(__name__)

IN_FILE: Final = (
    "the bridge {name!r} stands in the configuration file: change or remove its table [[bridge]]"
    " there, and start the broker anew; here it can be stopped and started"
)
BEGINNING: Final = 64
"""Characters of a filter that a sentence about it has; it can be a thousand times as long."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a remote allows, before a bridge to it is made."""

    granted: Granted | None
    """`None`: it was not reached, or has refused."""
    reason: str
    """Why; empty if it has accepted."""
    doubts: tuple[str, ...]
    """What will be otherwise than the settings say, and what may not be what was meant."""


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
        await self._put(self.checked(_with_password(bridge, None)), "bridge made")

    async def change(self, bridge: Bridge) -> None:
        """The bridge of this name is this one from now on, and goes on where it was. One that it is
        already goes on as if nobody had asked, with its connection and what waits in memory."""
        before = self._changeable(bridge.name)
        bridge = self.checked(_with_password(bridge, before))
        if bridge == before:
            return
        if not self._bridges.may_change(bridge):
            sentence = (
                "its filters have been changed so often while its remote is away that no more can"
                " be kept of what waits for former ones; change it again once the remote is back"
            )
            raise CommandRefusedError(Refusal.TOO_MANY, sentence)
        await self._put(bridge, "bridge changed")

    async def remove(self, name: str) -> None:
        """It is gone, and what waited for its remote is lost."""
        self._changeable(name)
        await self._durable(self._bridges.remove(name, self._now_us()))
        log.info("bridge removed", extra={"fields": {"bridge": name}})

    async def check(self, bridge: Bridge) -> Checked:
        """Connects with the remote once, and changes nothing."""
        known = self._bridges.find(bridge.name)
        bridge = self.checked(_with_password(bridge, None if known is None else known[0]))
        try:
            answer = await self._bridges.tried(bridge)
        except (OSError, TimeoutError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
            return Checked(None, reason, doubts(bridge))
        if isinstance(answer, Refused):
            return Checked(None, f"the remote refused: {answer.reason}", doubts(bridge))
        return Checked(answer, "", (*doubts(bridge), *_restrictions(bridge, answer)))

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


def _with_password(bridge: Bridge, known: Bridge | None) -> Bridge:
    """The bridge with its password in place of what is shown for one. Whoever may change bridges
    and has never known a password does not get it by sending it somewhere."""
    if bridge.password != HIDDEN:
        return bridge
    if known is None or known.password is None:
        sentence = f"{HIDDEN} stands for a password that is kept, and none is: say the password"
        raise CommandRefusedError(Refusal.WRONG_BRIDGE, sentence)
    if (bridge.address, bridge.tls) != (known.address, known.tls):
        sentence = (
            f"{HIDDEN} stands for the password that is kept for another address, or for other"
            " settings of TLS: say the password again, so that it goes nowhere unasked"
        )
        raise CommandRefusedError(Refusal.WRONG_BRIDGE, sentence)
    return replace(bridge, password=known.password)


def _restrictions(bridge: Bridge, granted: Granted) -> Iterator[str]:
    """What of a bridge the remote does not allow."""
    subscriptions = (*bridge.local_subscriptions, *bridge.remote_subscriptions)
    if any(item.max_qos > granted.maximum_qos for item in subscriptions):
        yield f"the remote takes QoS {granted.maximum_qos} at most: what has more is carried so"
    if not granted.retain_available and any(item.preserve_retain for item in subscriptions):
        yield "the remote retains nothing: preserve_retain has no effect on what goes there"
    if terms.not_taken(bridge, granted):
        yield (
            "the remote takes no wildcards, and remote_subscriptions has some: it is not asked for"
            " these"
        )
    _, too_large = divided(bridge, granted)
    if too_large:
        maximum, beginning = granted.maximum_packet_size_bytes, too_large[0][:BEGINNING]
        yield (
            f"the remote takes packets of {maximum} bytes at most, and no SUBSCRIBE as small as"
            f" that has room for {len(too_large)} of the filters of remote_subscriptions, one of"
            f' which begins with "{beginning}": nothing comes for them'
        )
