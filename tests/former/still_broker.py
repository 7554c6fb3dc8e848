"""A broker on a real directory that stands still until it is told to go on, and its clients.

Owns: what a client of MQTT 3.1.1 sends and has been sent. Never: knows what is in the directory.
"""

from pathlib import Path
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.kernel import decode_packets, encode_packet
from tests.builders.still import StillWorld, Wire, settled

SEGMENT_BYTES = 65_536


class StillBroker:
    """One life of a broker."""

    def __init__(self, directory: Path) -> None:
        self.world = StillWorld()
        config = Config(
            data_dir=directory,
            segment_bytes=SEGMENT_BYTES,
            retention_bytes=2**30,
            queue_messages_maximum=6,
            application_client_identifiers=("app",),
        )
        self.server: Server = assemble(config, self.world)

    async def client(self, name: str, *, clean: bool = False) -> "Client":
        """Somebody connects."""
        client = Client(self)
        fields = {"client_identifier": name, "clean_start": clean, "keep_alive_s": 0}
        await client.send("connect", **fields)
        return client

    def end(self) -> None:
        """The process is gone; what it wrote is there."""
        self.server.stages.kernel.log.close()


class Client:
    """One connection."""

    def __init__(self, broker: StillBroker) -> None:
        self._broker = broker
        self._wire = Wire(broker.server.stages.connections.make())

    async def send(self, kind: str, **fields: Any) -> None:
        """Sends one packet, and lets the broker do what it asks for."""
        self._wire.send(encode_packet(kind, fields, protocol_version=4))
        await settled(self._broker.world)

    async def subscribe(self, *topic_filters: str) -> None:
        """At QoS 2."""
        wanted = [{"topic_filter": each, "qos": 2} for each in topic_filters]
        await self.send("subscribe", packet_identifier=1, subscriptions=wanted)

    async def publish(self, topic: str, qos: int, *numbers: int) -> None:
        """The topic and a number as payload, each."""
        for number in numbers:
            payload = f"{topic} {number}".encode()
            words: dict[str, Any] = {"topic_name": topic, "payload": payload}
            words |= {"qos": qos, "retain": False, "dup": False}
            await self.send("publish", packet_identifier=number + 1, **words)
            if qos == 2:
                await self.send("pubrel", packet_identifier=number + 1)

    def packets(self) -> list[tuple[str, dict[str, Any]]]:
        """What has come since."""
        written = self._wire.written
        found, used = decode_packets(bytes(written), protocol_version=4, role="client")
        del written[:used]
        return [(packet.kind, packet.fields) for packet in found]

    def messages(self) -> list[dict[str, Any]]:
        """The PUBLISH packets of it."""
        return [fields for kind, fields in self.packets() if kind == "publish"]

    async def acknowledge(self, *messages: dict[str, Any]) -> None:
        """PUBACK for each."""
        for fields in messages:
            await self.send("puback", packet_identifier=fields["packet_identifier"])

    async def drop(self) -> None:
        """The connection is gone."""
        self._wire.drop()
        await settled(self._broker.world)
