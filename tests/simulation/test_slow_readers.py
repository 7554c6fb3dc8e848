"""A client that reads slowly, in virtual time: its queues wait as a whole, and go on as a whole."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.core.units import KIB
from holdfast.kernel import LIMITS, decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.whole import CONFIG, HOST, PORT

HIGH, LOW = 64 * KIB, 16 * KIB
SLOW = replace(
    CONFIG,
    write_buffer_high_bytes=HIGH,
    write_buffer_low_bytes=LOW,
    maximum_packet_size_bytes=16 * KIB,
    segment_bytes=1024 * KIB,
    queue_messages_maximum=10_000,
)
PAYLOAD_BYTES = 4 * KIB
MESSAGES = 1_500
"""Far more than the network and every buffer between hold."""
READ_BYTES = 64 * KIB
"""What a client reads at once."""
READ_AHEAD_BYTES = LIMITS["allot_bytes_maximum"] + 64 * KIB
"""What one turn may give to a client beyond the mark, in packets."""


class Reader(asyncio.Protocol):
    """Acknowledges what it gets, while it reads."""

    def __init__(self) -> None:
        self.received: list[tuple[str, int]] = []
        self.read_bytes = 0
        self._undecoded = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, kind: str, **fields: Any) -> None:
        self.transport.write(encode_packet(kind, fields, protocol_version=4))

    def data_received(self, data: bytes) -> None:
        self.read_bytes += len(data)
        packets, used = decode_packets(self._undecoded + data, protocol_version=4, role="client")
        self._undecoded = (self._undecoded + data)[used:]
        for packet in packets:
            if packet.kind == "publish":
                number = int(packet.fields["payload"][:8])
                self.received.append((packet.fields["topic_name"], number))
                self.send("puback", packet_identifier=packet.fields["packet_identifier"])

    def numbers(self, topic: str) -> list[int]:
        return [number for name, number in self.received if name == topic]


async def joined(name: str) -> Reader:
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(Reader, HOST, PORT)
    reader.send("connect", client_identifier=name, clean_start=False, keep_alive_s=0)
    return reader


async def subscribed(name: str, *filters: str) -> Reader:
    reader = await joined(name)
    wanted = [{"topic_filter": topic_filter, "qos": 1} for topic_filter in filters]
    reader.send("subscribe", packet_identifier=1, subscriptions=wanted)
    await asyncio.sleep(1)
    return reader


async def publish(publisher: Reader, topic: str, count: int, size_bytes: int) -> None:
    for number in range(count):
        publisher.send(
            "publish",
            topic_name=topic,
            payload=(b"%08d" % number).ljust(size_bytes, b"."),
            qos=1,
            packet_identifier=number + 1,
        )
        if number % 50 == 0:
            await asyncio.sleep(0.5)
    await asyncio.sleep(2)


class Inside:
    """What the broker holds for one client."""

    def __init__(self, server: Server, name: str) -> None:
        attached = server.stages.sessions.attached(name)
        assert attached is not None
        connection = server.stages.connections.get(attached.connection)
        assert connection is not None
        self._transport = connection.transport
        self._waiting = server.stages.kernel.outboxes.waiting_bytes
        self._handle = attached.connection

    def buffered(self) -> int:
        """In its write buffer."""
        return self._transport.get_write_buffer_size()

    def bytes(self) -> int:
        """All of it."""
        return self.buffered() + self._waiting(self._handle)


def with_broker(body: Callable[[Server], Awaitable[None]], config: Config = SLOW) -> None:
    """Runs `body` beside a broker in virtual time."""

    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(config, world))
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        await body(machine.life)
        await machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=Hardships())


@pytest.mark.accepts("S0.43", "S0.44", "S0.45", "S0.47", "S0.48")
def test_all_queues_of_a_slow_reader_pause_and_resume_together() -> None:
    async def body(server: Server) -> None:
        slow = await subscribed("slow", "own", "$share/g/shared")
        publisher = await joined("publisher")
        slow.transport.pause_reading()
        held = []
        for topic in ("own", "shared"):
            await publish(publisher, topic, MESSAGES, PAYLOAD_BYTES)
            held.append(Inside(server, "slow").bytes())
        assert HIGH < held[0] < HIGH + READ_AHEAD_BYTES
        assert held[1] == held[0], "nothing more is given, however much waits"
        assert not slow.numbers("shared"), "the group is paused with the rest"
        slow.transport.resume_reading()
        await asyncio.sleep(60)
        for topic in ("own", "shared"):
            assert slow.numbers(topic) == list(range(MESSAGES)), topic

    with_broker(body)


@pytest.mark.accepts("S0.46")
def test_between_the_marks_nothing_changes() -> None:
    wide_low = 128 * KIB

    async def body(server: Server) -> None:
        slow = await subscribed("slow", "own")
        publisher = await joined("publisher")
        slow.transport.pause_reading()
        await publish(publisher, "own", MESSAGES, PAYLOAD_BYTES)
        inside = Inside(server, "slow")
        seen = [inside.buffered()]
        # It reads a little at a time: the buffer sinks to the low mark before anything is added.
        while len(slow.received) < MESSAGES:
            slow.transport.resume_reading()
            await asyncio.sleep(0)
            slow.transport.pause_reading()
            await asyncio.sleep(0.01)
            seen.append(inside.buffered())
        rises = [before for before, after in pairwise(seen) if after > before]
        assert rises, "it was given more"
        assert max(rises) <= wide_low + READ_BYTES, "nothing is added above the low mark"
        assert slow.numbers("own") == list(range(MESSAGES))

    wide = replace(SLOW, write_buffer_high_bytes=512 * KIB, write_buffer_low_bytes=wide_low)
    with_broker(body, wide)


@pytest.mark.accepts("S0.18")
def test_a_client_that_never_reads_holds_up_nobody() -> None:
    async def body(server: Server) -> None:
        never, lively = await subscribed("never", "own"), await subscribed("lively", "own")
        publisher = await joined("publisher")
        never.transport.pause_reading()
        await publish(publisher, "own", MESSAGES, PAYLOAD_BYTES)
        assert lively.numbers("own") == list(range(MESSAGES))
        assert Inside(server, "never").bytes() < HIGH + READ_AHEAD_BYTES

    with_broker(body)


@pytest.mark.accepts("S0.41", "S0.42")
def test_the_marks_are_those_of_the_seed() -> None:
    async def body(server: Server) -> None:
        await subscribed("slow", "own")
        for config, marks in (
            (server.config, (1_280 * KIB, 640 * KIB)),
            (replace(server.config, write_buffer_high_bytes=10, write_buffer_low_bytes=5), (10, 5)),
        ):
            server.reconfigure(config)
            attached = server.stages.sessions.attached("slow")
            assert attached is not None
            connection = server.stages.connections.get(attached.connection)
            assert connection is not None
            transport: Any = connection.transport
            assert transport.get_write_buffer_limits() == marks[::-1]

    with_broker(body, CONFIG)
