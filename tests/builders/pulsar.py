"""A client of Pulsar without a network, at a broker that stands still."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.protocols.pulsar.commands import read_answer, write_command
from holdfast.protocols.pulsar.fields import (
    FROM_BROKERS,
    Command,
    Connect,
    Producer,
    Subscribe,
    SubType,
)
from tests.builders.entries import Frame, read_frame
from tests.builders.still import InlineWorkers, StillWorld, Wire, settled

Answer = Command | Frame
"""A command, or a frame of the kernel's own."""


class SoonWorkers(InlineWorkers):
    """Does everything here and now, and tells of it in the next step of the loop."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        asyncio.get_running_loop().call_soon(done, work())


class SoonWorld(StillWorld):
    """A world in which passwords are checked, and nothing is durable before it is committed."""

    durability = "fsync"

    def workers(self, count: int) -> SoonWorkers:
        return SoonWorkers()


class PulsarWire(Wire):
    """A socket of one client."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where the broker's end is."""
        return {"sockname": ("127.0.0.1", 6650), "peername": ("127.0.0.1", 50_000)}.get(
            name, default
        )

    def close(self) -> None:
        """The broker has closed it."""
        self.is_closed = True
        self.drop()

    is_closed = False

    def tell(self, *commands: Command) -> None:
        """Sends commands."""
        for command in commands:
            self.send(write_command(command))

    def answers(self) -> list[Answer]:
        """What has come since."""
        found: list[Answer] = []
        while self.written:
            total = int.from_bytes(self.written[:4], "big")
            size = int.from_bytes(self.written[4:8], "big")
            frame = read_frame(bytes(self.written[8 : 4 + total]), size)
            is_command = frame.kind in FROM_BROKERS
            data = bytes(self.written[8 : 8 + size])
            found.append(read_answer(data) if is_command else frame)
            del self.written[: 4 + total]
        return found


class PulsarBroker:
    """A broker that stands still until a test lets it go on."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.world = SoonWorld()
        config = Config(data_dir=directory, retention_bytes=2**30, **settings)
        self.server: Server = assemble(config, self.world)
        self.door = self.server.stages.pulsar

    def wire(self) -> PulsarWire:
        """A connection on which nothing was said yet."""
        connections = self.server.stages.connections
        return PulsarWire(connections.make("tcp", codec=self.door.codec))

    async def client(self, **options: Any) -> PulsarWire:
        """A connection that was let in."""
        wire = self.wire()
        wire.tell(connect(**options))
        await self.settle()
        wire.answers()
        return wire

    async def ask(self, wire: PulsarWire, *commands: Command) -> list[Answer]:
        """Sends commands; returns what comes of them."""
        wire.tell(*commands)
        await self.settle()
        return wire.answers()

    async def send(self, wire: PulsarWire, *frames: bytes) -> list[Answer]:
        """Sends frames that are made; returns what comes of them."""
        wire.send(b"".join(frames))
        await self.settle()
        return wire.answers()

    async def settle(self) -> None:
        """Lets turns and commits follow one another until nothing more happens."""
        await settled(self.world)

    async def later(self, seconds: int) -> None:
        """So much time passes, and a sweep."""
        self.world.time_us += seconds * 1_000_000
        self.server.sweep.run(self.world.time_us)
        await self.settle()


def connect(**fields: Any) -> Connect:
    """A CONNECT."""
    return Connect(**{"client_version": "test", "protocol_version": 20, **fields})


def producer(topic: str, number: int = 1, **fields: Any) -> Producer:
    """A PRODUCER."""
    return Producer(topic=topic, producer_id=number, request_id=number, **fields)


def subscribe(topic: str, subscription: str, number: int = 1, **fields: Any) -> Subscribe:
    """A SUBSCRIBE."""
    return Subscribe(
        **{
            "topic": topic,
            "subscription": subscription,
            "sub_type": SubType.EXCLUSIVE,
            "consumer_id": number,
            "request_id": number,
            **fields,
        }
    )
