"""The client that ships, beside a broker in virtual time: what is processed when, how often a
message is handed over, and what ends a connection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.client.mqtt import Client, ClientOptions, Delivery, Publication
from holdfast.kernel import decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.simulation.peer import Stand, sleep, with_broker
from tests.simulation.whole import HOST, PORT


class Worker(Client):
    """Takes its time: what it has received is acknowledged when a test says so."""

    def __init__(self, name: str = "worker", **options: Any) -> None:
        super().__init__(name, ClientOptions(**options))
        self.deliveries: list[Delivery] = []

    def received(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def seen(self) -> list[bytes]:
        return [delivery.payload for delivery in self.deliveries]

    async def come(self) -> bool:
        present = await self.connect(HOST, PORT)
        await sleep(1)
        return present

    async def come_again(self) -> bool:
        self.drop()
        await self.lost.wait()
        return await self.come()


async def subscribed(worker: Worker, qos: int) -> Worker:
    assert not await worker.come()
    assert await worker.subscribe("work/#", qos) == qos
    return worker


def test_a_message_is_acknowledged_when_it_has_been_processed() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=2), 1)
        await stand.publish("work/1", b"a", b"b", b"c")
        assert worker.seen() == [b"a", b"b"]
        worker.acknowledge(worker.deliveries[0])
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"c"]
        # What was not acknowledged comes again, and only that.
        assert await worker.come_again()
        assert worker.seen()[3:] == [b"b", b"c"]
        assert [delivery.dup for delivery in worker.deliveries[3:]] == [True, True]
        # What came on a connection that is over is not acknowledged on this one.
        worker.acknowledge(worker.deliveries[1])
        assert await worker.come_again()
        assert worker.seen()[5:] == [b"b", b"c"]
        worker.acknowledge(*worker.deliveries[5:])
        await sleep(1)
        assert await worker.come_again()
        assert len(worker.deliveries) == 7

    with_broker(body)


def test_where_nothing_else_is_said_messages_are_acknowledged_at_once() -> None:
    async def body(stand: Stand) -> None:
        plain = Client("plain", ClientOptions(receive_maximum=1))
        await plain.connect(HOST, PORT)
        await plain.subscribe("work/#", 2)
        await stand.publish("work/1", b"a", b"b", qos=2)
        plain.drop()
        await plain.lost.wait()
        worker = Worker("plain", receive_maximum=1)
        assert await worker.come()
        assert not worker.deliveries

    with_broker(body)


def test_a_message_of_qos_2_is_handed_over_once_whatever_becomes_of_connections() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=1), 2)
        await stand.publish("work/1", b"a", b"b", b"c", qos=2)
        assert worker.seen() == [b"a"]
        # It is still being processed when it is sent again.
        assert await worker.come_again()
        assert worker.seen() == [b"a"]
        worker.acknowledge(worker.deliveries[0])
        await sleep(1)
        assert worker.seen() == [b"a", b"b"]
        # It is processed while there is no connection.
        worker.drop()
        await worker.lost.wait()
        worker.acknowledge(worker.deliveries[1])
        assert await worker.come()
        assert worker.seen() == [b"a", b"b", b"c"]

    with_broker(body)


def test_what_came_in_a_session_that_is_gone_acknowledges_nothing() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=1, clean_start=True), 2)
        await stand.publish("work/1", b"a", qos=2)
        worker.drop()
        await worker.lost.wait()
        await subscribed(worker, 2)
        await stand.publish("work/1", b"b", b"c", qos=2)
        first, second = worker.deliveries
        assert first.packet_identifier == second.packet_identifier
        worker.acknowledge(first)
        await sleep(1)
        assert worker.seen() == [b"a", b"b"]
        worker.acknowledge(second)
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"c"]

    with_broker(body)


def test_a_batch_arrives_once_although_the_power_fails_in_between() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=1_000), 2)
        publisher = Client("source", ClientOptions(in_flight_maximum=7))
        await publisher.connect(HOST, PORT)
        payloads = [str(number).encode() for number in range(100)]
        publisher.publish(*(Publication("work/1", payload, qos=2) for payload in payloads))
        assert publisher.waiting() == 100
        while publisher.waiting() > 50:
            await sleep(0.01)
        stand.cut_power()
        await publisher.lost.wait()
        await sleep(5)
        assert await publisher.connect(HOST, PORT)
        await publisher.idle.wait()
        assert publisher.waiting() == 0
        assert await worker.come()
        while len(worker.deliveries) < 100:
            await sleep(1)
        assert worker.seen() == payloads

    with_broker(body, hardships=Hardships(delay_s=0.01, disk_latency_s=0.01))


def test_a_will_is_left_behind() -> None:
    async def body(_stand: Stand) -> None:
        worker = await subscribed(Worker(), 1)
        mortal = Client("mortal", ClientOptions())
        await mortal.connect(HOST, PORT, Publication("work/will", b"gone", qos=1))
        mortal.drop()
        await sleep(1)
        assert worker.seen() == [b"gone"]

    with_broker(body)


class Script(asyncio.Protocol):
    """The broker's end of a connection: it accepts, and sends what a test asks for."""

    def __init__(self, ends: "list[Script]", present: bool) -> None:
        self.ended = False
        self._came: list[tuple[str, dict[str, Any]]] = []
        self._present = present
        ends.append(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended = True

    def data_received(self, data: bytes) -> None:
        packets, _ = decode_packets(data, protocol_version=5, role="server")
        self._came.extend((packet.kind, packet.fields) for packet in packets)
        if self.of_kind("connect") and len(self._came) == 1:
            properties = {"receive_maximum": 3}
            fields = {"session_present": self._present, "reason_code": 0, "properties": properties}
            self.send("connack", **fields)

    def send(self, kind: str, **fields: Any) -> None:
        self._transport.write(encode_packet(kind, fields, protocol_version=5))

    def publish(self, payload: bytes, *, dup: bool = False) -> None:
        self.send(
            "publish", packet_identifier=1, qos=2, dup=dup, topic_name="work/1", payload=payload
        )

    def of_kind(self, *kinds: str) -> list[dict[str, Any]]:
        return [fields for kind, fields in self._came if kind in kinds]

    def answers(self) -> list[str]:
        return [kind for kind, _ in self._came if kind in ("pubrec", "pubcomp")]


def scripted(
    body: Callable[[Worker, list[Script]], Awaitable[None]], present: tuple[bool, ...] = (False,)
) -> None:
    """Runs `body` with a client and the other ends of its connections; each has that Session
    Present."""

    async def main(loop: VirtualLoop) -> None:
        ends: list[Script] = []
        await loop.create_server(lambda: Script(ends, present[len(ends)]), HOST, PORT)
        worker = Worker()
        await worker.come()
        await body(worker, ends)

    simulate(main, seed=1, repeat="this test", hardships=Hardships(delay_s=0.01))


def test_a_broker_that_breaks_the_protocol_is_left() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        ends[0].send("puback", packet_identifier=9, reason_code=0)
        await sleep(1)
        assert worker.lost.is_set()

    scripted(body)


def test_a_packet_identifier_stands_for_another_message_after_its_release() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        for payload in (b"a", b"b"):
            ends[0].publish(payload)
            await sleep(1)
            worker.acknowledge(worker.deliveries[-1])
            ends[0].send("pubrel", packet_identifier=1, reason_code=0)
            await sleep(1)
        assert worker.seen() == [b"a", b"b"]
        assert ends[0].answers() == ["pubrec", "pubcomp"] * 2

    scripted(body)


def test_what_was_processed_is_said_on_the_connection_that_it_comes_on_again() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        ends[0].publish(b"a")
        await sleep(1)
        await worker.come_again()
        worker.acknowledge(worker.deliveries[0])
        await sleep(1)
        assert ends[1].answers() == []
        ends[1].publish(b"a", dup=True)
        await sleep(1)
        assert ends[1].answers() == ["pubrec"]
        assert worker.seen() == [b"a"]

    scripted(body, (False, True))


def test_what_is_sent_again_says_so_where_the_broker_knows_the_session() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        worker.publish(Publication("work/1", b"a", qos=1))
        await sleep(1)
        for _ in range(2):
            await worker.come_again()
        assert [end.of_kind("publish")[0]["dup"] for end in ends] == [False, True, False]

    scripted(body, (False, True, False))


def test_no_more_is_in_flight_than_the_broker_takes() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        worker.publish(*(Publication("work/1", b"a", qos=1) for _ in range(10)))
        await sleep(1)
        sent = ends[0].of_kind("publish")
        assert len(sent) == 3
        ends[0].send("puback", packet_identifier=sent[0]["packet_identifier"], reason_code=0)
        await sleep(1)
        assert len(ends[0].of_kind("publish")) == 4
        assert worker.waiting() == 9

    scripted(body)


def test_a_connection_from_which_the_session_was_taken_over_is_ended() -> None:
    async def body(worker: Worker, ends: list[Script]) -> None:
        await worker.come()
        assert [end.ended for end in ends] == [True, False]
        assert not worker.lost.is_set()

    scripted(body, (False, True))


def test_what_is_larger_than_the_broker_takes_is_refused_and_ends_nothing() -> None:
    class Sender(Worker):
        def __init__(self) -> None:
            super().__init__("sender")
            self.answers: list[tuple[int, int]] = []

        def acknowledged(self, publication: Publication) -> None:
            self.answers.append((len(publication.payload), 0))

        def refused(self, publication: Publication, reason_code: int) -> None:
            self.answers.append((len(publication.payload), reason_code))

    async def body(stand: Stand) -> None:
        sender = Sender()
        await sender.come()
        most = sender.granted
        assert most is not None
        size = most.maximum_packet_size_bytes
        sender.publish(*(Publication("work/1", bytes(n), 1) for n in (size, 7, size - 100)))
        await sleep(1)
        assert sender.answers == [(size, 0x95), (7, 0), (size - 100, 0)]
        assert sender.idle.is_set()
        assert not sender.lost.is_set()

    with_broker(body)
