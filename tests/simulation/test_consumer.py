"""A client that acknowledges whole batches, beside a broker in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.client.consumer import Arrival, Consumer
from holdfast.client.mqtt import ClientOptions, ConnectionFailedError, Publication
from holdfast.kernel import decode_packets, decode_runs, encode_acknowledgements, encode_packet
from tests.simulation.peer import Stand, sleep, with_broker
from tests.simulation.whole import CONFIG, HOST, PORT


class Worker(Consumer):
    """Keeps what it is handed."""

    def __init__(self, **options: Any) -> None:
        super().__init__("worker", ClientOptions(**options))
        self.batches: list[Sequence[Arrival]] = []
        self.reasons: list[int] = []

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        self.batches.append(arrivals)

    def dismissed(self, reason_code: int) -> None:
        self.reasons.append(reason_code)

    def all(self) -> list[Arrival]:
        return [arrival for batch in self.batches for arrival in batch]

    def seen(self) -> list[bytes]:
        return [arrival.payload for arrival in self.all()]

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
    assert await worker.subscribe_all(("work/#", "other/#"), qos) == [qos, qos]
    return worker


@pytest.mark.parametrize("qos", [1, 2])
def test_a_batch_comes_in_one_call_and_is_acknowledged_at_once(qos: int) -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=3), qos)
        await stand.publish("work/1", b"a", b"b", b"c", b"d", b"e", b"f", b"g", qos=2)
        assert [len(batch) for batch in worker.batches] == [3]
        worker.acknowledge_all(worker.all())
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert [arrival.qos for arrival in worker.all()] == [qos] * 6
        assert worker.open_count() == 3
        worker.acknowledge_all(worker.all())
        await sleep(1)
        assert worker.seen()[6:] == [b"g"]

    with_broker(body)


def test_a_message_that_comes_again_is_handed_over_once_and_answered_when_it_is_done() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=2), 2)
        await stand.publish("work/1", b"a", b"b", b"c", b"d", qos=2)
        first, second = worker.all()
        # One is done while there is no connection, the other after it has come again.
        worker.drop()
        await worker.lost.wait()
        worker.acknowledge_all([first])
        assert await worker.come()
        assert worker.seen() == [b"a", b"b", b"c"]
        worker.acknowledge_all([second])
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"c", b"d"]

    with_broker(body)


def test_at_qos_1_what_came_on_an_earlier_connection_is_not_acknowledged() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=2), 1)
        await stand.publish("work/1", b"a", b"b", b"c")
        before = worker.all()
        assert await worker.come_again()
        assert worker.seen() == [b"a", b"b", b"a", b"b"]
        assert [arrival.dup for arrival in worker.all()[2:]] == [True, True]
        worker.acknowledge_all(before)
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"a", b"b"]
        worker.acknowledge_all(worker.all()[2:])
        await sleep(1)
        assert worker.seen()[4:] == [b"c"]

    with_broker(body)


def test_what_was_handed_over_in_a_session_that_is_gone_acknowledges_nothing() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(receive_maximum=1, clean_start=True), 2)
        await stand.publish("work/1", b"a", qos=2)
        worker.drop()
        await worker.lost.wait()
        await subscribed(worker, 2)
        await stand.publish("work/1", b"b", b"c", qos=2)
        first, second = worker.all()
        assert first.packet_identifier == second.packet_identifier
        worker.acknowledge_all([first])
        await sleep(1)
        assert worker.seen() == [b"a", b"b"]
        worker.acknowledge_all([second])
        await sleep(1)
        assert worker.seen() == [b"a", b"b", b"c"]

    with_broker(body)


def test_it_is_told_why_the_broker_ends_a_connection() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(), 2)
        other = Worker()
        await other.come()
        assert worker.lost.is_set()
        assert worker.reasons == [0x8E]
        assert other.granted is not None

    with_broker(body)


def test_what_is_published_waits_for_its_acknowledgement() -> None:
    async def body(stand: Stand) -> None:
        worker = await subscribed(Worker(), 1)
        worker.publish(
            Publication("other/1", b"x", qos=1, properties={"user_property": [("a", "b")]})
        )
        await worker.idle.wait()
        await sleep(1)
        (arrival,) = worker.all()
        assert arrival.properties["user_property"] == [("a", "b")]

    with_broker(body)


def test_wrong_credentials_are_refused_by_name_and_not_shown() -> None:
    async def body(stand: Stand) -> None:
        worker = Worker(user_name="reader", password=b"secret")
        with pytest.raises(ConnectionFailedError, match="bad_user_name_or_password") as failed:
            await worker.come()
        assert failed.value.refused is not None
        assert failed.value.refused.lasts
        assert "secret" not in repr(worker.options)

    with_broker(body, replace(CONFIG, anonymous=False))


def test_runs_are_what_packets_are() -> None:
    packets = [
        ("publish", {"topic_name": "a", "payload": b"1", "qos": 1, "packet_identifier": 1}),
        ("publish", {"topic_name": "a", "payload": b"2", "qos": 0}),
        ("pubrel", {"packet_identifier": 3}),
        ("pubrel", {"packet_identifier": 4}),
        ("pingresp", {}),
    ]
    data = b"".join(encode_packet(kind, fields, protocol_version=5) for kind, fields in packets)
    runs, used = decode_runs(data + b"\x30", protocol_version=5)
    assert used == len(data)
    assert [kind for kind, _ in runs] == ["publish", "pubrel", "pingresp"]
    assert runs[0][1][1] == ("a", b"2", 0, False, False, 0, {})
    assert runs[1][1] == [3, 4]
    found, _ = decode_packets(
        encode_acknowledgements("pubrec", [3, 4], protocol_version=5),
        protocol_version=5,
        role="server",
    )
    assert [(packet.kind, packet.fields["packet_identifier"]) for packet in found] == [
        ("pubrec", 3),
        ("pubrec", 4),
    ]
