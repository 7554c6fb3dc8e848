"""A client of bare packets in virtual time, beside a broker: for what happens at a moment.

Owns: a connection's packets with the virtual second at which each came. Never: acknowledges or
sends anything that a test has not asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.broker.store.tables import parse_loss
from holdfast.core.config import Config
from holdfast.kernel import SimulatedDisk, decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.whole import CONFIG, HOST, PORT

sleep = asyncio.sleep
Body = Callable[["Stand"], Awaitable[None]]


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.packets: list[tuple[float, str, dict[str, Any]]] = []
        """Time, kind and fields of each packet, as they came."""
        self.ended = False
        self._undecoded = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        packets, used = decode_packets(
            self._undecoded + data, protocol_version=self.version, role="client"
        )
        self._undecoded = (self._undecoded + data)[used:]
        now = asyncio.get_running_loop().time()
        self.packets.extend((now, packet.kind, packet.fields) for packet in packets)

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended = True

    def send(self, kind: str, **fields: Any) -> None:
        """One packet; properties may be left out."""
        fields.setdefault("properties", {})
        self._transport.write(encode_packet(kind, fields, protocol_version=self.version))

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, identifier: int = 0) -> None:
        """Sends PUBLISH; waits for nothing."""
        self.send(
            "publish",
            packet_identifier=identifier,
            qos=qos,
            retain=False,
            dup=False,
            topic_name=topic,
            payload=payload,
        )

    def acknowledge(self, kind: str, *identifiers: int) -> None:
        """Sends PUBACK, PUBREC or PUBCOMP for each."""
        for identifier in identifiers:
            self.send(kind, packet_identifier=identifier, reason_code=0)

    def pause_reading(self) -> None:
        """Takes no more bytes for a while."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes bytes again."""
        self._transport.resume_reading()

    def cut(self) -> None:
        """Ends the connection without a word."""
        self._transport.abort()

    def of_kind(self, *kinds: str) -> list[dict[str, Any]]:
        """The fields of all packets of these kinds."""
        return [fields for _, kind, fields in self.packets if kind in kinds]

    def seconds(self, kind: str) -> list[int]:
        """The whole seconds at which packets of this kind came, each once."""
        return sorted({round(at) for at, found, _ in self.packets if found == kind})

    def forget(self) -> None:
        """From here on only what comes now counts."""
        self.packets.clear()


class Stand:
    """A broker in virtual time and its clients."""

    def __init__(self, machine: BrokerMachine) -> None:
        self._machine = machine

    @property
    def server(self) -> Server:
        """The broker's present life."""
        assert isinstance(self._machine.life, Server)
        return self._machine.life

    @property
    def disk(self) -> SimulatedDisk:
        """What its log is on."""
        return self._machine.disk

    async def connect(
        self, name: str, version: int = 5, *, clean: bool = False, **properties: Any
    ) -> Peer:
        """A connection on which CONNACK has come. The session is kept unless it is `clean`."""
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: Peer(version), HOST, PORT)
        if version == 5 and not clean:
            properties.setdefault("session_expiry_interval", 3_600)
        peer.send(
            "connect",
            protocol_version=version,
            client_identifier=name,
            clean_start=clean,
            keep_alive_s=0,
            user_name=None,
            password=None,
            will=None,
            properties=properties,
        )
        await asyncio.sleep(1)
        (connack,) = peer.of_kind("connack")
        assert connack["reason_code"] == 0
        return peer

    async def subscribe(
        self, peer: Peer, topic_filter: str, qos: int = 2, **properties: Any
    ) -> None:
        """Subscribes, and waits for SUBACK."""
        wanted = {
            "topic_filter": topic_filter,
            "qos": qos,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        peer.send("subscribe", packet_identifier=1, subscriptions=[wanted], properties=properties)
        await asyncio.sleep(1)
        assert peer.of_kind("suback")

    async def publish(self, topic: str, *payloads: bytes, qos: int = 1, **properties: Any) -> None:
        """Publishes, each message acknowledged; they become durable together."""
        publisher = await self.connect("publisher", clean=True)
        for identifier, payload in enumerate(payloads, 1):
            publisher.send(
                "publish",
                packet_identifier=identifier if qos else 0,
                qos=qos,
                retain=False,
                dup=False,
                topic_name=topic,
                payload=payload,
                properties=properties,
            )
        await asyncio.sleep(1)
        if qos == 1:
            assert len(publisher.of_kind("puback")) == len(payloads)
        if qos == 2:
            assert len(publisher.of_kind("pubrec")) == len(payloads)
        publisher.cut()

    def cut_power(self) -> None:
        """The broker's machine goes out and starts again."""
        self._machine.cut_power()
        self._machine.recover()

    async def restart(self) -> None:
        """The broker ends cleanly and starts again."""
        await self._machine.stop()
        self._machine.recover()
        await asyncio.sleep(3)

    def files(self) -> list[str]:
        """The names of the log's files."""
        return self._machine.disk.files()

    def losses(self) -> list[tuple[str, str, int]]:
        """Client, reason and count of each row of the ledger."""
        rows = self.server.records.catch_up().losses(1_000)
        found = [parse_loss(value) for _key, value in rows]
        return [(loss.client_identifier, loss.reason, loss.count) for loss in found]


def with_broker(body: Body, config: Config = CONFIG, hardships: Hardships | None = None) -> None:
    """Runs `body` beside a broker in virtual time."""

    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(config, world))
        machine.start()
        await asyncio.sleep(1)
        await body(Stand(machine))
        await machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=hardships or Hardships())
