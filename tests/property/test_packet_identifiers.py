"""Packet identifiers over several wraps, with answers that come in any order, late, and across
reconnects: each is the next one that is free, told by a model that only counts.

So none that is in flight is given to another message, and none is passed over for ever.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.core.config import Config
from holdfast.kernel import decode_packets, encode_packet
from tests.builders.still import StillWorld, Wire, settled

LAST_IDENTIFIER = 65_535
MESSAGES = 3 * LAST_IDENTIFIER + 1_000
BURST_MAXIMUM = 2_000
BACKLOG_MAXIMUM = 5_000
"""Fewer than a queue at rest may hold."""
KEPT = 0.001
"""The part of the messages that is answered only much later, some after whole wraps."""
FORGIVEN = 0.02
"""The part of those that is answered after all, each time."""
COMES_BACK = 0.1
"""How often the subscriber comes back between two bursts."""


@dataclass(slots=True)
class Exchange:
    """A message in flight, by its identifier."""

    payload: bytes
    qos: int
    is_released: bool = False
    """PUBREC was sent: PUBREL comes from now on, and no PUBLISH."""
    is_kept: bool = False


class Subscriber:
    """A persistent session that answers what it likes, and knows which identifier comes next."""

    def __init__(self, version: int, receive_maximum: int, random: Random) -> None:
        self.given = 0
        self._version = version
        self._receive_maximum = receive_maximum
        self._random = random
        self._last = 0
        self._in_flight: dict[int, Exchange] = {}
        self._wire: Wire

    def connect(self, wire: Wire) -> None:
        """Comes, or comes back."""
        self._wire = wire
        fields: dict[str, Any] = {
            "client_identifier": "s",
            "clean_start": False,
            "keep_alive_s": 0,
        }
        if self._version == 5:
            properties = {"session_expiry_interval": 600, "receive_maximum": self._receive_maximum}
            fields["properties"] = properties
        self._send("connect", fields)

    def subscribe(self) -> None:
        """To all there is."""
        wanted = [{"topic_filter": "t", "qos": 2}]
        self._send("subscribe", {"packet_identifier": 1, "subscriptions": wanted})

    def read(self) -> list[Any]:
        """All packets that have come."""
        written = bytes(self._wire.written)
        packets, used = decode_packets(written, protocol_version=self._version, role="client")
        del self._wire.written[:used]
        return packets

    def take(self, packets: Iterable[Any]) -> None:
        """What has come on a connection that goes on: nothing comes twice."""
        publishes = [packet.fields for packet in packets if packet.kind == "publish"]
        assert not any(fields["dup"] for fields in publishes)
        self._take_new(publishes)

    def take_back(self, packets: list[Any]) -> None:
        """What comes first after it has come back: everything in flight, under its identifier."""
        connack, *rest = packets
        assert connack.kind == "connack"
        assert connack.fields["session_present"]
        publishes = [packet.fields for packet in rest if packet.kind == "publish"]
        again = {f["packet_identifier"]: f["payload"] for f in publishes if f["dup"]}
        released = {p.fields["packet_identifier"] for p in rest if p.kind == "pubrel"}
        known = self._in_flight.items()
        assert again == {key: item.payload for key, item in known if not item.is_released}
        assert released == {key for key, item in known if item.is_released}
        self._take_new([fields for fields in publishes if not fields["dup"]])

    def _take_new(self, publishes: list[dict[str, Any]]) -> None:
        # At QoS 2 a message waits until its identifier is durable, so that others overtake it.
        found = {fields["packet_identifier"]: fields for fields in publishes}
        assert found.keys() == set(self._next_free(len(publishes)))
        for identifier, fields in found.items():
            self._in_flight[identifier] = Exchange(fields["payload"], fields["qos"])
        self.given += len(found)

    def _next_free(self, count: int) -> list[int]:
        """The identifiers of so many new messages: 1 follows 65 535 [MQTT-2.2.1-3]."""
        found: list[int] = []
        while len(found) < count:
            self._last = self._last % LAST_IDENTIFIER + 1
            if self._last not in self._in_flight:
                found.append(self._last)
        return found

    def answer(self) -> None:
        """Goes on with a random part of what is in flight, in any order; keeps some for long."""
        random, answers = self._random, bytearray()
        for identifier in random.sample(list(self._in_flight), len(self._in_flight)):
            exchange = self._in_flight[identifier]
            if exchange.is_kept and random.random() > FORGIVEN:
                continue
            exchange.is_kept = random.random() < KEPT
            if exchange.is_kept or random.random() < 0.1:
                continue
            kind = "puback"
            if exchange.qos == 2:
                kind = "pubcomp" if exchange.is_released else "pubrec"
            answers += encode_packet(
                kind, {"packet_identifier": identifier}, protocol_version=self._version
            )
            if kind == "pubrec":
                exchange.is_released = True
            else:
                del self._in_flight[identifier]
        self._wire.send(answers)

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        self._wire.send(encode_packet(kind, fields, protocol_version=self._version))


class Publisher:
    """Sends bursts at QoS 1 and 2; whoever drives it lets everything settle in between."""

    def __init__(self, wire: Wire, random: Random) -> None:
        self._wire = wire
        self._random = random
        self.sequence = 0
        connect = {"client_identifier": "p", "clean_start": True, "keep_alive_s": 0}
        wire.send(encode_packet("connect", connect, protocol_version=4))

    def publish(self) -> None:
        """One burst, under identifiers that are all free again."""
        burst = bytearray()
        for identifier in range(1, self._random.randint(1, BURST_MAXIMUM) + 1):
            self.sequence += 1
            burst += encode_packet(
                "publish",
                {
                    "packet_identifier": identifier,
                    "topic_name": "t",
                    "payload": self.sequence.to_bytes(4, "big"),
                    "qos": self._random.randint(1, 2),
                },
                protocol_version=4,
            )
        self._wire.send(burst)

    def release(self) -> None:
        """PUBREL for every PUBREC of the last burst."""
        written = bytes(self._wire.written)
        packets, used = decode_packets(written, protocol_version=4, role="client")
        del self._wire.written[:used]
        for packet in packets:
            if packet.kind == "pubrec":
                fields = {"packet_identifier": packet.fields["packet_identifier"]}
                self._wire.send(encode_packet("pubrel", fields, protocol_version=4))


async def exchange_over_wraps(directory: Path, version: int, receive_maximum: int) -> None:
    random, world = Random(receive_maximum), StillWorld()
    config = Config(data_dir=directory, receive_maximum=65_535, retention_bytes=2**32)
    server = assemble(config, world)

    def wire() -> Wire:
        return Wire(server.stages.connections.make())

    publisher, subscriber = Publisher(wire(), random), Subscriber(version, receive_maximum, random)

    async def settle() -> None:
        """Until nothing more comes."""
        written = -1
        deliveries = server.stages.kernel.deliveries
        while written != len(connection.written) or deliveries.waiting():
            written = len(connection.written)
            await settled(world)

    connection = wire()
    subscriber.connect(connection)
    subscriber.subscribe()
    await settle()
    assert [packet.kind for packet in subscriber.read()] == ["connack", "suback"]
    while subscriber.given < MESSAGES:
        if publisher.sequence - subscriber.given < BACKLOG_MAXIMUM:
            publisher.publish()
        await settle()
        publisher.release()
        subscriber.take(subscriber.read())
        subscriber.answer()
        await settle()
        subscriber.take(subscriber.read())
        if random.random() < COMES_BACK:
            connection.drop()
            connection = wire()
            subscriber.connect(connection)
            await settle()
            subscriber.take_back(subscriber.read())


@pytest.mark.slow
@pytest.mark.accepts("S0.53", "S0.54", "S0.56")
@pytest.mark.parametrize(("version", "receive_maximum"), [(5, 100), (5, 3_000), (4, 65_535)])
def test_an_identifier_in_flight_is_never_given_again_and_none_is_passed_over(
    tmp_path: Path, version: int, receive_maximum: int
) -> None:
    asyncio.run(exchange_over_wraps(tmp_path, version, receive_maximum))
