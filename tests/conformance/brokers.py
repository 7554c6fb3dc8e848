"""The broker under test: in a process of its own on real sockets, or whole in virtual time.

Owns: how a test reaches it, and how long it waits. Both are `peer.Broker`; in virtual time there
are a clock that a test moves and a power switch besides.
"""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop
from holdfast.testing.world import DISK_BYTES, BrokerMachine, SimulatedWorld
from tests.conformance.peer import probe
from tests.process import HOST, BrokerProcess

WITHIN_S = 60.0
"""How long a real broker may take for an answer; the disk below it stalls now and then."""
VIRTUAL_WITHIN_S = 30.0
SETTLES_WITHIN_S = 2.5
"""More than two sweeps of the broker, which come once a second."""

MIB = 2**20
NEARLY_FULL_BYTES = 6 * MIB
CONFIG = Config(
    data_dir=Path("simulated"),
    host=HOST,
    mqtt_port=1883,
    http_port=None,
    pulsar_port=None,
    segment_bytes=MIB,
    checkpoint_bytes=4 * MIB,
    reserve_bytes=2 * MIB,
)


class SocketChannel:
    """A connection over TCP."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """As `peer.Channel`."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return

    def receive(self) -> bytes:
        """As `peer.Channel`."""
        try:
            return self._socket.recv(65_536)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """As `peer.Channel`."""
        self._socket.close()


class ProcessBroker:
    """A broker in a process of its own."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._process = BrokerProcess(directory, durability="memory", **settings)
        self._process.start()

    def open(self) -> SocketChannel:
        """A new connection."""
        return SocketChannel(self._process.port)

    def settle(self) -> None:
        """As `peer.Broker`."""
        probe(self)

    def stop(self) -> None:
        """Ends it; fails if it had ended by itself."""
        assert self._process.is_running(), self._process.log()
        assert self._process.stop() == 0, self._process.log()


class VirtualChannel(asyncio.Protocol):
    """A connection in virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._received = bytearray()
        self._ended = False
        self._transport: asyncio.Transport | None = None
        self._woken: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._received += data
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        del error
        self._ended = True
        self._wake()

    def send(self, data: bytes) -> None:
        """As `peer.Channel`."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def receive(self) -> bytes:
        """As `peer.Channel`."""
        if not self._received and not self._ended:
            self._loop.run_until_complete(self._wait())
        data = bytes(self._received)
        self._received.clear()
        return data

    def close(self) -> None:
        """As `peer.Channel`."""
        assert self._transport is not None
        self._transport.abort()

    async def _wait(self) -> None:
        self._woken = self._loop.create_future()
        async with asyncio.timeout(VIRTUAL_WITHIN_S):
            await self._woken

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class VirtualBroker:
    """A whole broker in virtual time, on a machine with a disk and a power switch."""

    def __init__(self, **settings: Any) -> None:
        self._config = replace(CONFIG, **settings)
        self.loop = VirtualLoop(1, Hardships())
        self._machine = BrokerMachine(self.loop, self._begin)
        self._lives = 0
        self.begin()

    def begin(self) -> None:
        """Switches it on."""
        self._machine.start()
        self._lives += 1
        self.pass_time(0.1)

    def open(self) -> VirtualChannel:
        """A new connection."""
        made = self.loop.create_connection(lambda: VirtualChannel(self.loop), HOST, 1883)
        _transport, channel = self.loop.run_until_complete(made)
        assert isinstance(channel, VirtualChannel)
        return channel

    def settle(self) -> None:
        """As `peer.Broker`."""
        self.pass_time(SETTLES_WITHIN_S)

    def pass_time(self, seconds: float) -> None:
        """Lets it live on for so long; fails if it ended by itself."""
        self.wait(seconds)
        assert self._machine.lives == self._lives, "\n".join(self.loop.trace.tail)

    def wait(self, seconds: float) -> None:
        """Moves the clock, whether or not it is on."""
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        self.loop.run_until_complete(passed)

    def server(self) -> Server:
        """The broker of this life, for who looks at what it holds."""
        assert isinstance(self._machine.life, Server)
        return self._machine.life

    def set_clock(self, seconds: float) -> None:
        """Somebody sets the machine's clock, by so much."""
        self._machine.set_clock(seconds)

    def take_turns(self, count: int) -> None:
        """Lets `count` iterations of its loop pass."""

        async def turns() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def stop(self) -> None:
        """Ends it cleanly."""
        self.loop.run_until_complete(self._machine.stop())

    def cut_power(self, *, synced: bool = False) -> None:
        """Ends it where it is; what was not synced may be gone. `synced`: the disk has just come
        round to everything."""
        if synced and isinstance(self._machine.life, Server):
            self._machine.life._stages.kernel.log.commit()
        self._machine.cut_power()

    def deny_publishing(self, client: str) -> None:
        """Whoever is connected under this identifier may publish to nothing any more."""
        assert isinstance(self._machine.life, Server)
        stages = self._machine.life._stages
        attached = {item.session.client_identifier: item for item in stages.sessions.all_attached()}
        stages.kernel.routes.grant(attached[client].connection, [], None)

    def fill_disk(self) -> None:
        """Little more fits on the disk than is on it."""
        self._machine.disk.set_capacity(NEARLY_FULL_BYTES)

    def free_disk(self) -> None:
        """There is room again, which the broker looks for once in a while."""
        self._machine.disk.set_capacity(DISK_BYTES)
        self.settle()

    def restart(self) -> None:
        """Ends it cleanly and begins again."""
        self.stop()
        self.begin()

    def close(self) -> None:
        """Ends everything."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()

    def _begin(self, world: SimulatedWorld) -> Server:
        return assemble(self._config, world)
