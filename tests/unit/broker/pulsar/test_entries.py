"""Entries on their way: from a producer to the disk, to consumers, and to subscribers of MQTT."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.commands import CommandRefusedError, Commands, Refusal
from holdfast.broker.counts import Event
from holdfast.broker.observe.watch import Watch
from holdfast.broker.pulsar.closing import EndReason
from holdfast.broker.state.broker import look_at
from holdfast.core.loss_reason import LossReason
from holdfast.core.topic_properties import TopicProperties
from holdfast.kernel import Packet, decode_packets, encode_packet
from holdfast.protocols.pulsar.commands import write_command
from holdfast.protocols.pulsar.fields import CloseConsumer, Ping, SubType, Success
from holdfast.protocols.pulsar.refusals import Refusal as PulsarRefusal
from tests.builders.entries import (
    ACK_RESPONSE,
    MESSAGE,
    PROPERTY,
    SEND_ERROR,
    SEND_RECEIPT,
    Frame,
    acknowledge,
    entry,
    flow,
    message,
    metadata_of,
    payloads_of,
    properties_of,
    redeliver,
    send,
)
from tests.builders.pulsar import Answer, PulsarBroker, producer, subscribe
from tests.builders.still import Wire

SHARED = {"sub_type": SubType.SHARED}
BATCH = entry([b"a", b"b", b"c"])
CHECKSUM_ERROR = 9
OPEN = entry([b"open"], batch=False)
ENCRYPTION_KEY, SCHEMA_VERSION, NULL_VALUE, CHUNKS, CHUNK_ID = 13, 16, 25, 27, 29
"""Fields of an entry's metadata."""

Test = Callable[[PulsarBroker], Awaitable[None]]


def with_broker(directory: Path, test: Test, **settings: Any) -> None:
    async def run() -> None:
        await test(PulsarBroker(directory, **settings))

    asyncio.run(run())


def frames(answers: list[Answer], kind: int) -> list[Frame]:
    return [answer for answer in answers if isinstance(answer, Frame) and answer.kind == kind]


async def subscriber(broker: PulsarBroker, topic_filter: str, qos: int) -> Wire:
    wire = Wire(broker.server.stages.connections.make())
    fields = {"client_identifier": f"q{qos}", "clean_start": True, "keep_alive_s": 0}
    wire.send(encode_packet("connect", fields, protocol_version=5))
    await broker.settle()
    wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": topic_filter, "qos": qos}]}
    wire.send(encode_packet("subscribe", wanted, protocol_version=5))
    await broker.settle()
    wire.written.clear()
    return wire


def packets(wire: Wire) -> list[Packet]:
    found, used = decode_packets(bytes(wire.written), protocol_version=5, role="client")
    del wire.written[:used]
    return found


def test_a_receipt_waits_for_the_disk_and_has_the_sequence_id_of_its_entry(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        wire.send(send(1, 7, BATCH, 3) + send(1, 10, entry([b"x"], batch=False)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.answers() == []
        await broker.settle()
        receipts = frames(wire.answers(), SEND_RECEIPT)
        assert [receipt.fields[2] for receipt in receipts] == [7, 10]
        assert [receipt.message_id[1] for receipt in receipts] == [0, 1]

    with_broker(tmp_path, test)


def test_an_entry_with_a_wrong_checksum_is_refused_and_the_next_one_is_taken(
    tmp_path: Path,
) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        damaged = BATCH[:-1] + b"d"
        answers = await broker.send(wire, send(1, 0, damaged, 3), send(1, 3, BATCH, 3))
        (error,) = frames(answers, SEND_ERROR)
        assert error.fields[3] == CHECKSUM_ERROR
        counts = broker.server.counts
        assert counts.total(Event.PULSAR_REQUESTS_REFUSED, PulsarRefusal.DAMAGED) == 1
        (receipt,) = frames(answers, SEND_RECEIPT)
        assert receipt.fields[2] == 3
        assert receipt.message_id[1] == 0

    with_broker(tmp_path, test)


def test_a_full_log_is_told_where_producers_alone_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: PulsarBroker) -> None:
        watch = Watch(look_at(broker.server, str(tmp_path / "view")))
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        answers = await broker.send(wire, *(send(1, 3 * it, BATCH, 3) for it in range(2)))
        assert len(frames(answers, SEND_ERROR)) == 2
        assert broker.server.counts.total(Event.PULSAR_REQUESTS_REFUSED, PulsarRefusal.NO_ROOM) == 2
        with caplog.at_level(logging.WARNING):
            watch.look(broker.world.time_us)
        assert "log full: messages are refused" in caplog.text

    with_broker(tmp_path, test, reserve_bytes=2**62)


def test_a_consumer_is_given_an_entry_as_it_came_and_as_many_as_it_permits(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        answers = await broker.send(wire, *(send(1, 3 * number, BATCH, 3) for number in range(3)))
        assert frames(answers, MESSAGE) == []
        given = frames(await broker.send(wire, flow(2, 4)), MESSAGE)
        assert [message.tail for message in given] == [BATCH, BATCH]
        # Four were permitted and six given.
        assert frames(await broker.send(wire, flow(2, 2)), MESSAGE) == []
        assert len(frames(await broker.send(wire, flow(2, 1)), MESSAGE)) == 1

    with_broker(tmp_path, test)


def test_an_acknowledgement_is_answered_when_it_is_durable(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        given = frames(await broker.send(wire, send(1, 0, BATCH, 3), flow(2, 10)), MESSAGE)
        (message,) = given
        wire.send(acknowledge(2, message.message_id, request=5))
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.answers() == []
        await broker.settle()
        (answer,) = frames(wire.answers(), ACK_RESPONSE)
        assert answer.fields[6] == 5
        found = broker.door.subscriptions.find("t", "mine")
        assert found is not None
        assert found.queue.in_flight() == 0

    with_broker(tmp_path, test)


def test_what_is_acknowledged_beside_an_entry_goes_to_the_disk_with_it(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        log = broker.server.stages.kernel.log
        wire = await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        answers = await broker.send(wire, send(1, 0, BATCH, 3), flow(2, 10))
        (given,) = frames(answers, MESSAGE)
        before = log.statistics()["commits"]
        acknowledged = acknowledge(2, given.message_id)
        answers = await broker.send(wire, acknowledged, send(1, 3, BATCH, 3))
        assert len(frames(answers, SEND_RECEIPT)) == 1
        assert log.statistics()["commits"] == before + 1
        assert log.uncommitted_bytes() == 0

    with_broker(tmp_path, test)


def test_what_a_consumer_wants_again_comes_again_counted(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2, **SHARED))
        given = frames(await broker.send(wire, send(1, 0, BATCH, 3), flow(2, 10)), MESSAGE)
        (first,) = given
        (again,) = frames(await broker.send(wire, redeliver(2, first.message_id)), MESSAGE)
        assert again.message_id == first.message_id
        assert (first.fields.get(3, 0), again.fields[3]) == (0, 1)

    with_broker(tmp_path, test)


def test_a_subscriber_of_mqtt_gets_each_message_of_a_batch(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        subscribers = [await subscriber(broker, "a/+", qos) for qos in (0, 1)]
        wire = await broker.client()
        await broker.ask(wire, producer("a%2Fb"))
        await broker.send(wire, send(1, 0, BATCH, 3))
        for qos, each in enumerate(subscribers):
            got = packets(each)
            assert [packet.fields["payload"] for packet in got] == [b"a", b"b", b"c"]
            assert {packet.fields["qos"] for packet in got} == {qos}
            assert {packet.fields["topic_name"] for packet in got} == {"a/b"}

    with_broker(tmp_path, test)


def test_a_consumer_is_given_what_is_published_by_mqtt(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        assert await broker.ask(wire, subscribe("a%2Fb", "mine")) == [Success(request_id=1)]
        await broker.send(wire, flow(1, 10))
        device = await subscriber(broker, "else", 0)
        fields = {"topic_name": "a/b", "payload": b"x", "retain": False, "dup": False}
        for number in (1, 2):
            publish = fields | {"qos": 1, "packet_identifier": number}
            device.send(encode_packet("publish", publish, protocol_version=5))
        await broker.settle()
        given = frames(wire.answers(), MESSAGE)
        assert [message.message_id[1] for message in given] == [0, 1]
        assert all(message.tail.endswith(b"x") for message in given)

    with_broker(tmp_path, test)


@pytest.mark.parametrize(
    ("besides", "told"),
    [
        ((SCHEMA_VERSION, b"\0\0\0\0\0\0\0\2"), []),
        ((NULL_VALUE, 1), [("pulsar-null-value", "true")]),
    ],
    ids=["schema-version", "null-value"],
)
def test_what_only_consumers_can_be_told_stays_with_the_entry(
    tmp_path: Path, besides: tuple[int, int | bytes], told: list[tuple[str, str]]
) -> None:
    async def test(broker: PulsarBroker) -> None:
        device, wire = await subscriber(broker, "t", 1), await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        tail = entry([b""], batch=False, besides=[besides])
        (given,) = frames(await broker.send(wire, send(1, 0, tail), flow(2, 1)), MESSAGE)
        assert given.tail == tail
        (packet,) = packets(device)
        assert packet.fields["payload"] == b""
        assert packet.fields["properties"].get("user_property", []) == told

    with_broker(tmp_path, test)


def test_properties_keep_their_order_and_a_name_comes_twice(tmp_path: Path) -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]

    async def test(broker: PulsarBroker) -> None:
        device, wire = await subscriber(broker, "up", 1), await broker.client()
        await broker.ask(wire, producer("up"), subscribe("down", "mine", 2))
        besides = [(PROPERTY, message((1, name.encode()), (2, of.encode()))) for name, of in pairs]
        await broker.send(wire, send(1, 0, entry([b"x"], batch=False, besides=besides)), flow(2, 1))
        (packet,) = packets(device)
        assert packet.fields["properties"]["user_property"] == pairs
        fields = {"topic_name": "down", "payload": b"x", "retain": False, "dup": False}
        publish = fields | {
            "qos": 1,
            "packet_identifier": 1,
            "properties": {"user_property": pairs},
        }
        device.send(encode_packet("publish", publish, protocol_version=5))
        await broker.settle()
        (given,) = frames(wire.answers(), MESSAGE)
        assert properties_of(given.tail) == pairs

    with_broker(tmp_path, test)


@pytest.mark.parametrize(
    "besides",
    [[(ENCRYPTION_KEY, message((1, b"key"), (2, b"value")))], [(CHUNKS, 2), (CHUNK_ID, 0)]],
    ids=["encrypted", "chunk"],
)
def test_what_devices_cannot_be_given_is_a_loss_of_theirs_and_comes_to_consumers(
    tmp_path: Path, besides: list[tuple[int, int | bytes]]
) -> None:
    async def test(broker: PulsarBroker) -> None:
        device, wire = await subscriber(broker, "t", 1), await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        closed = entry([b"x"], batch=False, besides=besides)
        answers = await broker.send(wire, send(1, 0, closed), send(1, 1, OPEN), flow(2, 2))
        assert [given.tail for given in frames(answers, MESSAGE)] == [closed, OPEN]
        assert [packet.fields["payload"] for packet in packets(device)] == [b"open"]
        losses = broker.server.stages.losses
        losses.write(broker.world.time_us)
        row = losses.find(1)
        assert row is not None
        told = (row.client_identifier, row.reason, row.count)
        assert told == ("q1", LossReason.CLOSED, 1)
        assert losses.by_reason == {LossReason.CLOSED: 1}

    with_broker(tmp_path, test)


def test_who_sends_faster_than_it_may_is_not_cut_off_and_waits(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        # The first one alone has more messages than a second allows.
        sent = (send(1, 3 * number, BATCH, 3) for number in range(3))
        answers = await broker.send(wire, *sent, write_command(Ping()))
        assert [receipt.fields[2] for receipt in frames(answers, SEND_RECEIPT)] == [0]
        assert len(answers) == 1
        await broker.later(1)
        assert [receipt.fields[2] for receipt in frames(wire.answers(), SEND_RECEIPT)] == [3]
        # It is paid for two sweeps later, since three of two a second were taken.
        await broker.later(1)
        assert wire.answers() == []
        await broker.later(1)
        assert [receipt.fields[2] for receipt in frames(wire.answers(), SEND_RECEIPT)] == [6]
        assert not wire.is_closed

    with_broker(tmp_path, test, client_messages_per_second=2)


def test_who_was_held_longer_than_need_be_may_send_what_it_could_have_sent(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        sent = (send(1, number, OPEN) for number in range(3, 7))
        answers = await broker.send(wire, send(1, 0, BATCH, 3), *sent)
        assert len(frames(answers, SEND_RECEIPT)) == 1
        await broker.later(10)
        assert len(frames(wire.answers(), SEND_RECEIPT)) == 4

    with_broker(tmp_path, test, client_messages_per_second=2)


def test_who_waits_goes_on_at_once_when_its_limit_goes(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        answers = await broker.send(wire, *(send(1, 3 * it, BATCH, 3) for it in range(9)))
        assert len(frames(answers, SEND_RECEIPT)) == 1
        config = replace(broker.server.config, client_messages_per_second=0)
        broker.server.reconfigure(config)
        await broker.settle()
        assert len(frames(wire.answers(), SEND_RECEIPT)) == 8

    with_broker(tmp_path, test, client_messages_per_second=1)


def test_a_client_that_goes_while_it_is_held_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"))
        await broker.send(wire, send(1, 0, BATCH, 3), send(1, 3, BATCH, 3))
        assert len(broker.door.pace) == 1
        wire.drop()
        await broker.settle()
        await broker.later(1)
        assert len(broker.door.pace) == 0
        # Its handle is another's by then.
        other = await broker.client()
        await broker.ask(other, producer("t"))
        assert len(frames(await broker.send(other, send(1, 0, BATCH, 3)), SEND_RECEIPT)) == 1
        await broker.later(60)
        assert len(frames(await broker.send(other, send(1, 3, BATCH, 3)), SEND_RECEIPT)) == 1

    with_broker(tmp_path, test, client_messages_per_second=1)


def test_the_rate_of_all_clients_is_one_for_both_protocols(tmp_path: Path) -> None:
    def published(device: Wire, first: int) -> None:
        fields = {"topic_name": "t", "payload": b"x", "retain": False, "dup": False, "qos": 1}
        for number in range(first, first + 10):
            publish = fields | {"packet_identifier": number}
            device.send(encode_packet("publish", publish, protocol_version=5))

    async def test() -> None:
        broker = PulsarBroker(tmp_path, broker_messages_per_second=10)
        device, wire = await subscriber(broker, "else", 0), await broker.client()
        await broker.ask(wire, producer("t"))
        answers = await broker.send(wire, *(send(1, number, OPEN) for number in range(10)))
        assert len(frames(answers, SEND_RECEIPT)) == 10
        published(device, 1)
        await broker.settle()
        assert packets(device) == []
        broker.world.time_us += 1_000_000
        device.send(encode_packet("pingreq", {}, protocol_version=5))
        await broker.settle()
        assert [packet.kind for packet in packets(device)].count("puback") == 10
        answers = await broker.send(wire, *(send(1, number, OPEN) for number in range(10, 20)))
        assert frames(answers, SEND_RECEIPT) == []

    asyncio.run(test())


def test_an_empty_message_of_a_device_has_a_value_and_no_schema(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire, device = await broker.client(), await subscriber(broker, "else", 0)
        await broker.ask(wire, subscribe("t", "mine"))
        fields = {"topic_name": "t", "payload": b"", "retain": False, "dup": False}
        publish = fields | {"qos": 1, "packet_identifier": 1}
        device.send(encode_packet("publish", publish, protocol_version=5))
        await broker.settle()
        (given,) = frames(await broker.send(wire, flow(1, 1)), MESSAGE)
        assert payloads_of(given.tail) == [b""]
        assert not {SCHEMA_VERSION, NULL_VALUE} & metadata_of(given.tail).keys()

    with_broker(tmp_path, test)


def test_what_was_not_acknowledged_goes_to_who_comes_next(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire, other = await broker.client(), await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        single = entry([b"x"], batch=False)
        sent = [send(1, number, single) for number in range(3)]
        given = frames(await broker.send(wire, *sent, flow(2, 10)), MESSAGE)
        await broker.send(wire, acknowledge(2, given[1].message_id))
        wire.drop()
        await broker.settle()
        await broker.ask(other, subscribe("t", "mine", 1))
        again = frames(await broker.send(other, flow(1, 10)), MESSAGE)
        assert [message.message_id for message in again] == [
            given[0].message_id,
            given[2].message_id,
        ]

    with_broker(tmp_path, test)


def test_a_loss_of_a_subscription_is_not_driven_again_and_the_answer_says_why(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        # Of five entries of a hundred bytes each some go.
        small = TopicProperties(retention_bytes=300, segment_bytes=100)
        broker = PulsarBroker(tmp_path, application_queue_properties=small)
        wire, stages = await broker.client(), broker.server.stages
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        await broker.ask(wire, CloseConsumer(consumer_id=2, request_id=3))
        await broker.send(wire, *(send(1, number, OPEN) for number in range(5)))
        await broker.ask(wire, subscribe("t", "mine", 2))
        given = frames(await broker.send(wire, flow(2, 10)), MESSAGE)
        assert 0 < len(given) < 5
        stages.losses.write(broker.world.time_us)
        commands = Commands(stages, lambda: broker.world.time_us, lambda: None)
        with pytest.raises(CommandRefusedError, match="from its own queue alone") as refused:
            await commands.redrive(1)
        assert refused.value.refusal is Refusal.SUBSCRIPTION
        row = stages.losses.find(1)
        assert row is not None
        assert (row.count, row.redriven_at_us) == (5 - len(given), None)

    asyncio.run(test())


def test_all_up_to_an_entry_is_acknowledged(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2))
        sent = [send(1, 3 * number, BATCH, 3) for number in range(3)]
        given = frames(await broker.send(wire, *sent, flow(2, 100)), MESSAGE)
        await broker.send(wire, acknowledge(2, given[1].message_id, up_to=True))
        found = broker.door.subscriptions.find("t", "mine")
        assert found is not None
        assert found.queue.in_flight() == 3
        assert found.queue.mark() == found.queue.record.created_at_offset + 6

    with_broker(tmp_path, test)


@pytest.mark.accepts("S4.26")
def test_all_up_to_an_entry_is_not_for_those_who_share(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire, other = await broker.client(), await broker.client()
        await broker.ask(wire, producer("t"), subscribe("t", "mine", 2, **SHARED))
        await broker.ask(other, subscribe("t", "mine", 1, **SHARED))
        (first,) = frames(await broker.send(wire, send(1, 0, BATCH, 3), flow(2, 3)), MESSAGE)
        await broker.send(wire, acknowledge(2, first.message_id, up_to=True))
        assert broker.server.counts.total(Event.PULSAR_CONNECTIONS_ENDED, EndReason.FAULT) == 1
        (again,) = frames(await broker.send(other, flow(1, 3)), MESSAGE)
        assert again.message_id == first.message_id

    with_broker(tmp_path, test)


def test_a_message_that_is_too_large_for_a_consumer_is_a_loss_and_the_next_one_comes(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        broker = PulsarBroker(tmp_path, pulsar_max_message_bytes=1_024)
        wire = await broker.client()
        await broker.ask(wire, subscribe("a", "mine"))
        await broker.send(wire, flow(1, 10))
        device = await subscriber(broker, "else", 0)
        fields = {"topic_name": "a", "retain": False, "dup": False, "qos": 1}
        for number, payload in ((1, bytes(20_000)), (2, b"x")):
            publish = fields | {"payload": payload, "packet_identifier": number}
            device.send(encode_packet("publish", publish, protocol_version=5))
        await broker.settle()
        (given,) = frames(wire.answers(), MESSAGE)
        assert given.tail.endswith(b"x")
        assert not wire.is_closed
        found = broker.door.subscriptions.find("a", "mine")
        assert found is not None
        assert found.queue.mark() == found.queue.record.created_at_offset + 1
        assert broker.server.stages.losses.by_reason == {LossReason.TOO_LARGE: 1}

    asyncio.run(test())
