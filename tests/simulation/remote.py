"""The other end of a bridge in virtual time: a server of bare packets that does what a test says.

Owns: its connections, and what came on each. Never: keeps a session or hands anything on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.bridge.link import Link
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.kernel import decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.peer import Stand
from tests.simulation.whole import CONFIG

REMOTE_HOST, REMOTE_PORT = "10.0.0.2", 1883


class Remote:
    """A server that answers as a good one would, but for what a test changes."""

    def __init__(self, version: int = 5) -> None:
        self.version = version
        self.connack: dict[str, Any] = {}
        """Fields of CONNACK that differ from those of a success."""
        self.properties: dict[str, Any] = {}
        """Those of CONNACK."""
        self.suback: list[int] | None = None
        self.refusal = 0
        """The reason code of PUBACK and PUBREC."""
        self.silent_about: set[str] = set()
        """Kinds of packets that are not answered."""
        self.first_words: bytes | None = None
        """What is sent in place of CONNACK; empty: nothing."""
        self.ends_at_once = False
        self.visits: list[Visit] = []
        """Its connections, the oldest first."""

    async def listen(self) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Visit(self), REMOTE_HOST, REMOTE_PORT)

    def answer(self, _connect: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of CONNACK for this CONNECT."""
        told = {"session_present": False, "reason_code": 0, **self.connack}
        return told | {"properties": self.properties}

    @property
    def visit(self) -> "Visit":
        """The newest connection."""
        return self.visits[-1]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The fields of all packets of a kind, whenever they came."""
        return [fields for visit in self.visits for fields in visit.of_kind(kind)]


class Visit(asyncio.Protocol):
    """One connection."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.packets: list[tuple[float, str, dict[str, Any]]] = []
        self.ended_at: float | None = None
        self._undecoded = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.began_at = asyncio.get_running_loop().time()
        self.remote.visits.append(self)
        if self.remote.ends_at_once:
            transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended_at = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        self._undecoded += data
        packets, used = decode_packets(
            self._undecoded, protocol_version=self.remote.version, role="server"
        )
        self._undecoded = self._undecoded[used:]
        now = asyncio.get_running_loop().time()
        for packet in packets:
            assert packet.kind != "fault", packet.fields
            self.packets.append((now, packet.kind, packet.fields))
            self._answer(packet.kind, packet.fields)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The fields of all packets of a kind."""
        return [fields for _, found, fields in self.packets if found == kind]

    def send(self, kind: str, **fields: Any) -> None:
        """One packet; properties may be left out."""
        if kind != "pingresp":
            fields.setdefault("properties", {})
        version = self.remote.version
        self.send_bytes(encode_packet(kind, fields, protocol_version=version))

    def send_bytes(self, data: bytes) -> None:
        """Anything."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, identifier: int = 0, **fields: Any
    ) -> None:
        """One message."""
        self.send(
            "publish",
            packet_identifier=identifier,
            qos=qos,
            retain=False,
            dup=False,
            topic_name=topic,
            payload=payload,
            **fields,
        )

    def _answer(self, kind: str, fields: dict[str, Any]) -> None:
        remote = self.remote
        if kind in remote.silent_about:
            return
        identifier = fields.get("packet_identifier")
        match kind:
            case "connect" if remote.first_words is not None:
                self.send_bytes(remote.first_words)
            case "connect":
                self.send("connack", **remote.answer(fields))
            case "subscribe":
                codes = remote.suback
                if codes is None:
                    codes = [item["qos"] for item in fields["subscriptions"]]
                self.send("suback", packet_identifier=identifier, reason_codes=codes)
            case "unsubscribe":
                told = {"reason_codes": [0] * len(fields["topic_filters"])}
                self.send("unsuback", packet_identifier=identifier, **told)
            case "pingreq":
                self.send("pingresp")
            case "publish" if fields["qos"]:
                answer = "puback" if fields["qos"] == 1 else "pubrec"
                self.send(answer, packet_identifier=identifier, reason_code=remote.refusal)
            case "pubrec":
                self.send("pubrel", packet_identifier=identifier, reason_code=0)
            case "pubrel":
                self.send("pubcomp", packet_identifier=identifier, reason_code=0)


class Inquisitive(Remote):
    """Looks at each packet before it answers."""

    async def listen(self) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Inquired(self), REMOTE_HOST, REMOTE_PORT)

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""


class Inquired(Visit):
    """One connection with it."""

    remote: Inquisitive

    def _answer(self, kind: str, fields: dict[str, Any]) -> None:
        self.remote.look(self, kind, fields)
        super()._answer(kind, fields)


class Bridged(Stand):
    """A broker with one bridge, and what is at the other end of it."""

    def __init__(self, machine: BrokerMachine, remote: Remote, loop: VirtualLoop) -> None:
        super().__init__(machine)
        self.loop = loop
        self.remote = remote

    @property
    def link(self) -> Link:
        """The bridge at work."""
        (link,) = self.server.stages.bridges.links()
        return link

    def start(self) -> None:
        """Bridges connect from now on."""
        self._machine.run(self.server.start_bridges)

    async def restart(self, *, crashes: bool) -> None:
        """Its broker begins another life, after a clean end or a power cut."""
        if crashes:
            self._machine.cut_power()
        else:
            await self._machine.stop()
        self._machine.start()
        await asyncio.sleep(1)
        self.start()
        await asyncio.sleep(1)


Body = Callable[[Bridged], Awaitable[None]]
BOTH_WAYS: dict[str, Any] = {
    "local_subscriptions": [{"filters": ["up/#"]}],
    "remote_subscriptions": [{"filters": ["down/#"]}],
}


def with_remote(
    body: Body,
    remote: Remote | None = None,
    config: Config = CONFIG,
    hardships: Hardships | None = None,
    **bridge: Any,
) -> None:
    """Runs `body` beside a broker with a bridge to a scripted server; `bridge` are its settings."""
    server = remote or Remote()
    table = {"name": "b", "address": f"{REMOTE_HOST}:{REMOTE_PORT}", **BOTH_WAYS, **bridge}
    table["protocol_version"] = "5" if server.version == 5 else "3.1.1"
    told = replace(config, bridge_tables=(table,))

    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(told, world))
        await server.listen()
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        bridged = Bridged(machine, server, loop)
        bridged.start()
        await asyncio.sleep(1)
        await body(bridged)
        await machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=hardships or Hardships())


async def assert_nobody_notices(bridged: Bridged) -> None:
    """Clients of this side publish and receive as ever."""
    client = await bridged.connect(f"client-{asyncio.get_running_loop().time()}", clean=True)
    await bridged.subscribe(client, "up/noticed")
    await bridged.publish("up/noticed", b"1", b"2", qos=1)
    assert len(client.of_kind("publish")) == 2
    client.cut()
    await asyncio.sleep(1)


def topics(remote: Remote) -> list[str]:
    """Of all messages that came there, whenever they came."""
    return [fields["topic_name"] for fields in remote.all("publish")]


def names(bridged: Bridged) -> dict[str, list[str]]:
    """What names of hosts lead to."""
    return bridged.loop.network.names
