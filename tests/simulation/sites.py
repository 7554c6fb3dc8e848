"""Brokers on machines of their own in one simulated world, joined by bridges.

Owns: how a site is put up, and its bridges' wires. Never: decides what happens to them, or judges.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.bridge.link import Link, State
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.testing.loop import VirtualLoop
from holdfast.testing.world import BrokerMachine, SimulatedWorld
from tests.simulation.whole import CONFIG
from tests.simulation.wire import PORT, Wire

NAMES = ("a", "b", "c")
RETENTION_BYTES = 1 << 30
"""More than any run writes."""


def host_of(name: str) -> str:
    """Where a site's broker listens."""
    return f"10.0.0.{NAMES.index(name) + 1}"


def wire_host(near: str, far: str) -> str:
    """Where the wire from one site to another begins."""
    return f"10.1.{NAMES.index(near) + 1}.{NAMES.index(far) + 1}"


def carries(*filters: str, **fields: object) -> dict[str, object]:
    """A subscription of a bridge."""
    return {"filters": list(filters), **fields}


class _BridgedLife:
    """A broker that connects to others as soon as it serves, as a process does."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def start(self) -> None:
        await self.server.start()
        self.server.start_bridges()

    async def wait_ended(self) -> None:
        await self.server.wait_ended()

    async def stop(self) -> None:
        await self.server.stop()


class Site:
    """One broker, its machine and its bridges."""

    def __init__(self, loop: VirtualLoop, name: str, **settings: Any) -> None:
        self.name = name
        self.host = host_of(name)
        self.wires: dict[str, Wire] = {}
        self._bridges: list[dict[str, object]] = []
        # What waits for a remote waits for as long as the log keeps it.
        kept = {"retention_bytes": RETENTION_BYTES} | settings
        self._config = replace(CONFIG, host=self.host, **kept)
        self.machine = BrokerMachine(loop, self._begin)

    def join(self, far: str, **fields: Any) -> Wire:
        """It has a bridge to another site, by a wire; the bridge is named for that site."""
        version = 4 if fields.get("protocol_version") == "3.1.1" else 5
        wire = self.wires[far] = Wire(wire_host(self.name, far), host_of(far), version)
        address = f"mqtt://{wire.host}:{PORT}"
        client_identifier = f"{self.name}-to-{far}"
        own = {"name": far, "address": address, "client_identifier": client_identifier}
        self._bridges.append(own | fields)
        return wire

    def part(self, far: str) -> None:
        """Its configuration has no bridge to this site any more, from its next life on."""
        self._bridges = [bridge for bridge in self._bridges if bridge["name"] != far]

    async def start(self) -> None:
        """Its broker and its wires are there."""
        for wire in self.wires.values():
            await wire.open()
        self.machine.start()

    @property
    def is_up(self) -> bool:
        """Its broker serves."""
        return self.machine.life is not None

    @property
    def server(self) -> Server:
        """Its broker's present life."""
        assert isinstance(self.machine.life, _BridgedLife), f"{self.name} does not live"
        return self.machine.life.server

    def link(self, far: str) -> Link:
        """Its bridge to another site."""
        found = self.server.stages.bridges.find(far)
        assert found is not None
        assert found[2] is not None, "it runs"
        return found[2]

    def is_drained(self) -> bool:
        """Its bridges are connected, and nothing is in flight or on a shelf."""
        return self.is_up and all(
            link.state is State.CONNECTED
            and not link.queue.in_flight()
            and not link.queue.shelved()[0]
            for link in self.server.stages.bridges.links()
        )

    def _begin(self, world: SimulatedWorld) -> _BridgedLife:
        config: Config = replace(self._config, bridge_tables=tuple(self._bridges))
        return _BridgedLife(assemble(config, world))


def _is_at_rest(link: Link) -> bool:
    queue = link.queue
    return link.state is State.CONNECTED and not queue.in_flight() and not queue.shelved()[0]
