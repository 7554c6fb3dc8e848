"""Rules and rates in the whole broker: what a client on the wire sees of them, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.kernel import Deliveries, Inbox, Routes, decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.whole import CONFIG, HOST, PORT

NOTHING_FAILS = Hardships()
REPEAT = "pytest tests/simulation/test_rules_and_rates.py"
DENIED = 0x87
NOT_FOUND = 0x92
MESSAGE_RATE_TOO_HIGH = 0x96


class Peer(asyncio.Protocol):
    """A client of bare packets."""

    def __init__(self, version: int = 5) -> None:
        self.version = version
        self.packets: list[tuple[str, dict[str, Any]]] = []
        self.ended = asyncio.Event()
        self._undecoded = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._undecoded += data
        found, size = decode_packets(self._undecoded, protocol_version=self.version, role="client")
        self._undecoded = self._undecoded[size:]
        self.packets += [(packet.kind, packet.fields) for packet in found]

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended.set()

    def send(self, *packets: bytes) -> None:
        self._transport.write(b"".join(packets))

    def encoded(self, kind: str, **fields: Any) -> bytes:
        return encode_packet(kind, fields, protocol_version=self.version)

    def publish(self, topic: str, qos: int = 0, identifier: int = 0) -> bytes:
        fields = {"packet_identifier": identifier, "qos": qos, "topic_name": topic}
        return self.encoded("publish", payload=b"x", **fields)

    def answers(self, *kinds: str) -> list[tuple[str, int, int]]:
        """(kind, packet identifier, reason code)"""
        return [
            (kind, fields["packet_identifier"], fields.get("reason_code", 0))
            for kind, fields in self.packets
            if kind in kinds
        ]

    def topics(self) -> list[str]:
        return [fields["topic_name"] for kind, fields in self.packets if kind == "publish"]


class Table:
    """A broker, and what is granted by hand."""

    def __init__(self, loop: VirtualLoop, server: Server) -> None:
        kernel = server._stages.kernel
        self.loop, self.server = loop, server
        self.inbox: Inbox = kernel.inbox
        self.routes: Routes = kernel.routes
        self.deliveries: Deliveries = kernel.deliveries

    async def connected(self, name: str, version: int = 5, will: str = "") -> tuple[Peer, int]:
        """A client that is connected, and its handle."""
        peer = Peer(version)
        await self.loop.create_connection(lambda: peer, HOST, PORT)
        message = {"topic_name": will, "payload": b"gone", "qos": 0, "retain": False}
        peer.send(
            peer.encoded(
                "connect",
                protocol_version=version,
                client_identifier=name,
                clean_start=True,
                keep_alive_s=0,
                will=message if will else None,
            )
        )
        await asyncio.sleep(1)
        assert peer.packets.pop(0)[0] == "connack"
        party_of = {session: party for party, _, session in self.deliveries.queues()}
        return peer, max(party_of)

    async def subscribed(self, name: str, topic_filter: str) -> tuple[Peer, int]:
        """The same, with a subscription at QoS 1."""
        peer, handle = await self.connected(name)
        wanted = [{"topic_filter": topic_filter, "qos": 1}]
        peer.send(peer.encoded("subscribe", packet_identifier=1, subscriptions=wanted))
        await asyncio.sleep(1)
        assert peer.packets.pop(0)[0] == "suback"
        return peer, handle


def with_broker(check: Callable[[Table], Awaitable[None]]) -> None:
    """Runs `check` beside a broker."""

    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(CONFIG, world))
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        await check(Table(loop, machine.life))
        await machine.stop()

    simulate(main, seed=1, repeat=REPEAT, hardships=NOTHING_FAILS)


def test_what_may_not_be_published_is_answered_and_goes_nowhere() -> None:
    async def check(table: Table) -> None:
        reader, _ = await table.subscribed("reader", "#")
        peer, handle = await table.connected("peer")
        table.routes.grant(handle, [(b"open/#", True)], None)
        for identifier in (1, 2, 2):
            # 0x87 in PUBREC ends the exchange, so the identifier is free for the next.
            peer.send(peer.publish("shut", identifier, identifier), peer.publish("shut"))
            await asyncio.sleep(1)
        peer.send(peer.publish("open/a", 2, 2))
        await asyncio.sleep(1)
        assert peer.answers("puback", "pubrec") == [
            ("puback", 1, DENIED),
            ("pubrec", 2, DENIED),
            ("pubrec", 2, DENIED),
            ("pubrec", 2, 0),
        ]
        assert reader.topics() == ["open/a"]
        assert table.server.stages.kernel.routes.counters()["publishes_denied"] == 6

    with_broker(check)


def test_an_old_client_is_acknowledged_what_is_dropped() -> None:
    async def check(table: Table) -> None:
        reader, _ = await table.subscribed("reader", "#")
        peer, handle = await table.connected("peer", version=4)
        table.routes.grant(handle, [], None)
        peer.send(peer.publish("a", 1, 1), peer.publish("b", 2, 2))
        await asyncio.sleep(1)
        peer.send(peer.encoded("pubrel", packet_identifier=2))
        await asyncio.sleep(1)
        expected = [("puback", 1, 0), ("pubrec", 2, 0), ("pubcomp", 2, 0)]
        assert peer.answers("puback", "pubrec", "pubcomp") == expected
        assert not peer.ended.is_set()
        assert reader.topics() == []

    with_broker(check)


def test_rules_change_on_a_live_connection_and_end_with_it() -> None:
    async def check(table: Table) -> None:
        writer, _ = await table.connected("writer")
        reader, handle = await table.subscribed("reader", "#")

        async def published(qos: int, *topics: str) -> list[str]:
            reader.packets.clear()
            items = enumerate(topics, 1)
            writer.send(*(writer.publish(name, qos, at * qos) for at, name in items))
            await asyncio.sleep(1)
            return reader.topics()

        assert await published(0, "a", "b") == ["a", "b"]
        table.routes.grant(handle, None, [(b"a", True)])
        assert await published(0, "a", "b") == ["a"]
        assert await published(1, "a", "b") == ["a"]
        table.routes.grant(handle, None, [(b"a", False), (b"#", True)])
        assert await published(1, "a", "b") == ["b"]
        reader.send(reader.encoded("disconnect", reason_code=0))
        await asyncio.sleep(1)
        # Handles are used again, oldest first; nobody inherits a table.
        for number in range(3):
            reader, _ = await table.subscribed(f"next {number}", "a")
            assert await published(0, "a") == ["a"]

    with_broker(check)


def test_a_retained_message_that_may_not_be_received_is_not_sent() -> None:
    async def check(table: Table) -> None:
        writer, _ = await table.connected("writer")
        retained = {"packet_identifier": 0, "qos": 0, "retain": True, "payload": b"x"}
        for topic in ("a", "b"):
            writer.send(writer.encoded("publish", topic_name=topic, **retained))
        reader, handle = await table.connected("reader")
        [queue] = [queue for _, queue, of in table.deliveries.queues() if of == handle]
        table.deliveries.grant(queue, [(b"a", True)])
        wanted = [{"topic_filter": "+", "qos": 1}]
        reader.send(reader.encoded("subscribe", packet_identifier=1, subscriptions=wanted))
        await asyncio.sleep(1)
        assert reader.topics() == ["a"]

    with_broker(check)


@pytest.mark.parametrize("version", [4, 5])
def test_nobody_but_the_broker_publishes_to_sys(version: int) -> None:
    async def check(table: Table) -> None:
        reader, _ = await table.subscribed("reader", "$SYS/#")
        other, _ = await table.subscribed("other", "$other/#")
        heard = len(reader.topics())
        peer, _ = await table.connected("peer", version)
        for qos in (0, 1, 2):
            peer.send(peer.publish("$SYS/broker/load", qos, qos))
        peer.send(peer.publish("$SYS", 1, 3), peer.publish("$other/a", 1, 4))
        await asyncio.sleep(1)
        code = DENIED if version == 5 else 0
        answers = [("puback", 1, code), ("pubrec", 2, code), ("puback", 3, code), ("puback", 4, 0)]
        assert sorted(peer.answers("puback", "pubrec"), key=lambda one: one[1]) == answers
        assert not {"$SYS", "$SYS/broker/load"} & set(reader.topics()[heard:])
        assert other.topics() == ["$other/a"]
        assert table.routes.counters()["publishes_denied"] == 4

    with_broker(check)


@pytest.mark.parametrize("topic", ["$SYS", "$SYS/broker/load"])
def test_a_will_on_sys_is_refused(topic: str) -> None:
    async def check(table: Table) -> None:
        peer = Peer()
        await table.loop.create_connection(lambda: peer, HOST, PORT)
        message = {"topic_name": topic, "payload": b"gone", "qos": 0, "retain": False}
        fields = {"client_identifier": "x", "clean_start": True, "keep_alive_s": 0}
        peer.send(peer.encoded("connect", protocol_version=5, will=message, **fields))
        await peer.ended.wait()
        kind, answer = peer.packets[0]
        assert (kind, answer["reason_code"]) == ("connack", DENIED)

    with_broker(check)


def test_what_is_published_is_counted_by_qos_and_bytes() -> None:
    async def check(table: Table) -> None:
        await table.subscribed("reader", "#")
        peer, _ = await table.connected("peer")
        peer.send(peer.publish("a"), peer.publish("b", 1, 1), peer.publish("c", 1, 2))
        peer.send(peer.publish("d", 2, 3))
        await asyncio.sleep(1)
        assert table.server.turn.published() == ([1, 2, 1], 4)
        kernel = table.server._stages.kernel
        assert kernel.outboxes.counters()["payload_bytes_sent"] == 4

    with_broker(check)


def test_a_release_of_nothing_is_completed_and_a_receipt_of_nothing_told_so() -> None:
    """MQTT.js publishes again what was answered with 0x92, although it may have been released on an
    earlier connection."""

    async def check(table: Table) -> None:
        peer, _ = await table.connected("peer")
        release = {"reason_code": 0}
        peer.send(peer.encoded("pubrel", packet_identifier=7, **release))
        peer.send(peer.publish("a", 2, 8), peer.encoded("pubrel", packet_identifier=8, **release))
        peer.send(peer.encoded("pubrec", packet_identifier=9, reason_code=0))
        await asyncio.sleep(1)
        assert sorted(peer.answers("pubcomp", "pubrel")) == [
            ("pubcomp", 7, 0),
            ("pubcomp", 8, 0),
            ("pubrel", 9, NOT_FOUND),
        ]

    with_broker(check)


def test_who_sends_too_fast_is_told_and_closed() -> None:
    async def check(table: Table) -> None:
        peer, handle = await table.connected("peer")
        table.inbox.limit(handle, messages_per_second=10, bytes_per_second=0)
        for _ in range(5):
            peer.send(peer.publish("a") * 10)
            await asyncio.sleep(1)
        assert not peer.ended.is_set()
        peer.send(peer.publish("a") * 11)
        await peer.ended.wait()
        ((kind, fields),) = peer.packets
        assert (kind, fields["reason_code"]) == ("disconnect", MESSAGE_RATE_TOO_HIGH)
        assert "may send" in fields["properties"]["reason_string"]

    with_broker(check)


@pytest.mark.parametrize("why", ["the disk is behind", "a turn takes long", "CONNACK waits"])
def test_what_a_client_sends_while_it_is_not_read_is_not_too_fast(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(table: Table) -> None:
        reader, _ = await table.subscribed("reader", "#")
        peer, handle = await table.connected("peer")
        table.inbox.limit(handle, messages_per_second=10, bytes_per_second=10_000)
        connections = table.server._stages.connections
        peer.send(peer.publish("first"))
        await asyncio.sleep(1)
        began_us = connections._now_us()
        if why == "the disk is behind":
            monkeypatch.setattr(connections, "_uncommitted_bytes", lambda: 2**40)
            connections.resume(throttled=False)
        for _ in range(30 if why == "the disk is behind" else 1):
            peer.send(*(peer.publish("later") for _ in range(10)))
            await asyncio.sleep(1)
        if why == "the disk is behind":
            assert connections.is_paused(connections.get(handle))
            monkeypatch.undo()
            await asyncio.sleep(5)
        elif why == "a turn takes long":
            connections.stalled(began_us, began_us + 30_000_000)
            peer.send(*(peer.publish("later") for _ in range(290)))
            await asyncio.sleep(1)
        else:
            # As admission tells the kernel when CONNACK has waited for thirty seconds.
            table.inbox.limit(handle, messages_per_second=10, bytes_per_second=10_000)
            now_us = connections._now_us()
            table.inbox.unread(handle, now_us - 30_000_000, now_us)
            peer.send(*(peer.publish("later") for _ in range(290)))
            await asyncio.sleep(1)
        assert not peer.ended.is_set()
        assert reader.topics() == ["first", *["later"] * 300]
        peer.send(*(peer.publish("too much") for _ in range(100)))
        async with asyncio.timeout(5):
            await peer.ended.wait()

    with_broker(check)


@pytest.mark.parametrize("leaves", ["stays", "says goodbye"])
def test_what_comes_faster_than_all_may_send_waits_and_is_not_lost(leaves: str) -> None:
    async def check(table: Table) -> None:
        reader, _ = await table.subscribed("reader", "#")
        peer, _ = await table.connected("peer", will="will")
        table.inbox.limit_all(messages_per_second=100, bytes_per_second=0)
        turns, began = table.server.turn.count, table.loop.time()
        peer.send(*(peer.publish(f"topic/{number}") for number in range(600)))
        if leaves == "says goodbye":
            peer.send(peer.encoded("disconnect", reason_code=0))
            peer._transport.close()
        while len(reader.topics()) < 600:
            await asyncio.sleep(0.1)
            assert table.loop.time() - began < 10
        assert reader.topics() == [f"topic/{number}" for number in range(600)]
        assert 4.5 < table.loop.time() - began < 5.5, "a second's worth is free"
        assert table.server.turn.count - turns < 1_500, "it goes round without tokens"
        await asyncio.sleep(1)
        assert "will" not in reader.topics()
        assert table.inbox.next_at_us() is None

    with_broker(check)
