"""Pulsar's door by its commands: who gets in, who may produce and consume, and what is freed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.access.credential import Credential, Rule
from holdfast.broker.access.passwords import hash_password
from holdfast.broker.counts import Event
from holdfast.broker.pulsar.closing import EndReason
from holdfast.protocols.pulsar.fields import (
    NO_REQUEST,
    CloseConsumer,
    CloseProducer,
    Command,
    Connected,
    Error,
    GetLastMessageId,
    GetTopicsOfNamespace,
    GetTopicsOfNamespaceResponse,
    InitialPosition,
    Lookup,
    LookupResponse,
    PartitionedMetadata,
    PartitionedMetadataResponse,
    Ping,
    ProducerSuccess,
    SubType,
    Success,
    TopicsMode,
    Unsubscribe,
)
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.server_error import ServerError
from tests.builders.pulsar import Answer, PulsarBroker, PulsarWire, connect, producer, subscribe

SHARED = {"sub_type": SubType.SHARED}

Test = Callable[[PulsarBroker], Awaitable[None]]


def with_broker(directory: Path, test: Test, **settings: Any) -> None:
    async def run() -> None:
        broker = PulsarBroker(directory, **settings)
        await test(broker)
        await broker.server.stop()

    asyncio.run(run())


def error_of(answers: list[Answer]) -> ServerError:
    (answer,) = answers
    assert isinstance(answer, Error), answer
    return answer.error


def refused(broker: PulsarBroker, refusal: Refusal) -> int:
    return broker.server.counts.total(Event.PULSAR_REQUESTS_REFUSED, refusal)


def ended(broker: PulsarBroker, reason: EndReason) -> int:
    return broker.server.counts.total(Event.PULSAR_CONNECTIONS_ENDED, reason)


def test_connected_says_the_older_of_both_versions_and_the_largest_message(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        for theirs, told in ((20, 20), (12, 12), (99, 20)):
            wire = broker.wire()
            (answer,) = await broker.ask(wire, connect(protocol_version=theirs))
            assert isinstance(answer, Connected)
            assert answer.protocol_version == told
            assert answer.max_message_size == 5_242_880
            assert answer.server_version.startswith("Holdfast ")

    with_broker(tmp_path, test)


def test_an_unknown_way_to_authenticate_is_refused_and_the_connection_closed(
    tmp_path: Path,
) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = broker.wire()
        answers = await broker.ask(wire, connect(auth_method_name="token", auth_data=b"x"))
        assert error_of(answers) is ServerError.AUTHENTICATION_ERROR
        assert wire.is_closed
        assert refused(broker, Refusal.AUTHENTICATION_METHOD_UNKNOWN) == 1

    with_broker(tmp_path, test)


@pytest.mark.parametrize("first", [Lookup(topic="t", request_id=1), None])
def test_a_command_out_of_turn_ends_the_connection(tmp_path: Path, first: Command | None) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = broker.wire() if first is not None else await broker.client()
        assert await broker.ask(wire, first or connect()) == []
        assert wire.is_closed
        assert ended(broker, EndReason.FAULT) == 1
        assert len(broker.door.clients) == 0

    with_broker(tmp_path, test)


def test_a_look_up_tells_where_the_client_is_and_makes_no_topic(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        partitions, where, topics = await broker.ask(
            wire,
            PartitionedMetadata(topic="t", request_id=1),
            Lookup(topic="t", request_id=2),
            GetTopicsOfNamespace(
                request_id=3, namespace="public/default", mode=TopicsMode.PERSISTENT
            ),
        )
        assert isinstance(partitions, PartitionedMetadataResponse)
        assert partitions.partitions == 0
        assert isinstance(where, LookupResponse)
        assert where.broker_service_url == "pulsar://127.0.0.1:6650"
        assert isinstance(topics, GetTopicsOfNamespaceResponse)
        assert topics.topics == ()

    with_broker(tmp_path, test)


def test_a_look_up_tells_the_address_that_is_advertised(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        (where,) = await broker.ask(wire, Lookup(topic="t", request_id=2))
        assert isinstance(where, LookupResponse)
        assert where.broker_service_url == "pulsar://broker.example:16650"

    with_broker(tmp_path, test, pulsar_advertised_address="broker.example:16650")


@pytest.mark.accepts("S4.104", "S4.107")
def test_topics_lie_in_the_namespaces_that_there_are(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        name = "persistent://my-tenant/my-namespace/my-topic"
        (made,) = await broker.ask(wire, producer(name))
        assert isinstance(made, ProducerSuccess)
        asked = GetTopicsOfNamespace(request_id=1, namespace="my-tenant/my-namespace")
        (topics,) = await broker.ask(wire, asked)
        assert isinstance(topics, GetTopicsOfNamespaceResponse)
        assert topics.topics == (name,)
        other = await broker.ask(wire, producer("persistent://my-tenant/other/my-topic", 2))
        assert error_of(other) is ServerError.TOPIC_NOT_FOUND

    with_broker(tmp_path, test, pulsar_namespaces=("public/default", "my-tenant/my-namespace"))


def test_who_is_in_a_namespace_that_goes_is_ended_and_the_others_stay(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire, name = await broker.client(), "persistent://my-tenant/my-namespace/my-topic"
        await broker.ask(wire, producer(name), subscribe(name, "s", 2))
        await broker.ask(wire, producer("t", 3), subscribe("t", "s", 4))
        broker.server.reconfigure(replace(broker.server.config, pulsar_namespaces=()))
        await broker.settle()
        assert wire.answers() == [
            CloseProducer(producer_id=1, request_id=NO_REQUEST),
            CloseConsumer(consumer_id=2, request_id=NO_REQUEST),
        ]
        again = await broker.ask(wire, producer(name))
        assert error_of(again) is ServerError.TOPIC_NOT_FOUND

    with_broker(tmp_path, test, pulsar_namespaces=("my-tenant/my-namespace",))


def test_a_consumer_hears_that_it_is_there_before_it_hears_that_it_is_not(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        ann(broker, allow("all", "#"))
        wire = await broker.client(**LOGIN)
        wire.tell(producer("t"), subscribe("t", "mine", 2))
        for _ in range(3):
            await asyncio.sleep(0)
        # Both wait for the disk, and are not allowed any more.
        broker.server.stages.access.put_rules("ann", (), broker.world.now_us())
        await broker.settle()
        assert [type(answer) for answer in wire.answers()] == [
            ProducerSuccess,
            Success,
            CloseProducer,
            CloseConsumer,
        ]

    with_broker(tmp_path, test, anonymous=False)


def test_topics_that_were_named_are_listed_after_a_restart(tmp_path: Path) -> None:
    async def first(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("made"), subscribe("read%2Fby", "s"))

    async def second(broker: PulsarBroker) -> None:
        wire = await broker.client()
        asked = GetTopicsOfNamespace(request_id=1, namespace="public/default")
        (topics,) = await broker.ask(wire, asked)
        assert isinstance(topics, GetTopicsOfNamespaceResponse)
        assert topics.topics == (
            "persistent://public/default/made",
            "persistent://public/default/read%2Fby",
        )

    with_broker(tmp_path, first)
    with_broker(tmp_path, second)


def test_a_producer_that_comes_anew_takes_the_place_of_its_former_self(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        old, new = await broker.client(), await broker.client()
        (made,) = await broker.ask(old, producer("t"))
        assert isinstance(made, ProducerSuccess)
        given = {"producer_name": made.producer_name, "user_provided_producer_name": False}
        again = await broker.ask(new, producer("t", epoch=0, **given))
        assert error_of(again) is ServerError.PRODUCER_BUSY
        (answer,) = await broker.ask(new, producer("t", epoch=1, **given))
        assert isinstance(answer, ProducerSuccess)
        assert len(broker.door.producers) == 1

    with_broker(tmp_path, test)


def test_an_initial_subscription_keeps_what_its_producer_sends(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, producer("t", initial_subscription_name="dead"))
        assert broker.door.subscriptions.find("t", "dead") is not None

    with_broker(tmp_path, test)


def test_what_a_connection_held_is_free_when_it_ends(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        gone, other = await broker.client(), await broker.client()
        asked = producer("t", producer_name="only"), subscribe("t", "mine", 2)
        await broker.ask(gone, *asked)
        assert [type(answer) for answer in await broker.ask(other, *asked)] == [Error, Error]
        gone.drop()
        await broker.settle()
        answers = await broker.ask(other, *asked)
        assert [type(answer) for answer in answers] == [ProducerSuccess, Success]

    with_broker(tmp_path, test)


def test_a_subscription_lasts_over_a_restart(tmp_path: Path) -> None:
    async def first(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, subscribe("t", "a/b"))

    async def second(broker: PulsarBroker) -> None:
        found = broker.door.subscriptions.find("t", "a/b")
        assert found is not None
        assert found.sub_type is None

    with_broker(tmp_path, first)
    with_broker(tmp_path, second)


def test_a_subscription_that_was_ended_is_gone_after_a_restart(tmp_path: Path) -> None:
    async def first(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, subscribe("t", "mine"))
        answers = await broker.ask(wire, Unsubscribe(consumer_id=1, request_id=5))
        assert answers == [Success(request_id=5)]

    async def second(broker: PulsarBroker) -> None:
        assert len(broker.door.subscriptions) == 0

    with_broker(tmp_path, first)
    with_broker(tmp_path, second)


def test_a_subscription_with_other_consumers_does_not_end(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        one, other = await broker.client(), await broker.client()
        await broker.ask(one, subscribe("t", "mine", **SHARED))
        await broker.ask(other, subscribe("t", "mine", **SHARED))
        answers = await broker.ask(one, Unsubscribe(consumer_id=1, request_id=5))
        assert error_of(answers) is ServerError.METADATA_ERROR
        forced = Unsubscribe(consumer_id=1, request_id=6, force=True)
        assert await broker.ask(one, forced) == [Success(request_id=6)]
        assert other.answers() == [CloseConsumer(consumer_id=1, request_id=NO_REQUEST)]

    with_broker(tmp_path, test)


def test_closing_what_is_not_there_succeeds(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        answers = await broker.ask(
            wire,
            CloseProducer(producer_id=9, request_id=1),
            CloseConsumer(consumer_id=9, request_id=2),
        )
        assert answers == [Success(request_id=1), Success(request_id=2)]

    with_broker(tmp_path, test)


def test_what_is_not_served_is_refused_at_once(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        answers = await broker.ask(wire, GetLastMessageId(consumer_id=1, request_id=1))
        assert error_of(answers) is ServerError.NOT_ALLOWED_ERROR
        assert refused(broker, Refusal.NOT_SERVED) == 1

    with_broker(tmp_path, test)


@pytest.mark.accepts("S4.178")
def test_a_subscription_that_is_not_durable_is_refused(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        answers = await broker.ask(wire, subscribe("t", "reader", durable=False))
        assert error_of(answers) is ServerError.NOT_ALLOWED_ERROR
        assert len(broker.door.subscriptions) == 0

    with_broker(tmp_path, test)


def test_success_waits_for_the_disk(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        wire.tell(producer("t"), subscribe("t", "mine", 2))
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.answers() == []
        broker.world.commits_made.commit()
        await asyncio.sleep(0)
        answers = wire.answers()
        assert [type(answer) for answer in answers] == [ProducerSuccess, Success]

    with_broker(tmp_path, test)


def test_who_says_nothing_is_asked_and_then_ended(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        await broker.ask(wire, subscribe("t", "mine"))
        await broker.later(10)
        assert wire.answers() == [Ping()]
        await broker.later(9)
        assert not wire.is_closed
        await broker.later(2)
        assert wire.is_closed
        assert ended(broker, EndReason.SILENCE) == 1
        found = broker.door.subscriptions.find("t", "mine")
        assert found is not None
        assert found.consumers == []

    with_broker(tmp_path, test, pulsar_keep_alive_s=10)


def test_who_answers_stays(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        for _ in range(6):
            await broker.later(9)
            wire.tell(Ping())
            await broker.settle()
        assert not wire.is_closed

    with_broker(tmp_path, test, pulsar_keep_alive_s=10)


def ann(broker: PulsarBroker, *rules: Rule) -> None:
    access = broker.server.stages.access
    found = hash_password(b"right", broker.world.entropy)
    credential = Credential(name="ann", proof="password", password_hash=found)
    access.put(credential, broker.world.now_us())
    access.put_rules("ann", rules, broker.world.now_us())


def allow(action: Any, topic_filter: str) -> Rule:
    return Rule(action=action, topic_filter=topic_filter, allowed=True)


LOGIN = {"auth_method_name": "basic", "auth_data": b"ann:right"}


def test_producing_asks_for_publish_and_consuming_for_receive(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        ann(broker, allow("publish", "in/#"), allow("receive", "out/#"))
        wire = await broker.client(**LOGIN)
        allowed = await broker.ask(wire, producer("in%2Fa"), subscribe("out%2Fa", "s", 2))
        assert [type(answer) for answer in allowed] == [ProducerSuccess, Success]
        denied = await broker.ask(wire, producer("out%2Fa", 3), subscribe("in%2Fa", "s", 4))
        assert [answer.error for answer in denied if isinstance(answer, Error)] == [
            ServerError.AUTHORIZATION_ERROR
        ] * 2
        assert refused(broker, Refusal.NOT_AUTHORIZED) == 2

    with_broker(tmp_path, test)


def test_what_is_no_longer_allowed_ends(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        ann(broker, allow("all", "#"))
        wire = await broker.client(**LOGIN)
        await broker.ask(wire, producer("a"), subscribe("a", "s", 2), producer("b", 3))
        access = broker.server.stages.access
        access.put_rules("ann", (allow("all", "b"),), broker.world.now_us())
        await broker.settle()
        assert wire.answers() == [
            CloseProducer(producer_id=1, request_id=NO_REQUEST),
            CloseConsumer(consumer_id=2, request_id=NO_REQUEST),
        ]
        access.remove("ann", broker.world.now_us())
        assert wire.is_closed
        assert ended(broker, EndReason.NO_LONGER_ALLOWED) == 1

    with_broker(tmp_path, test, anonymous=False)


@pytest.mark.parametrize("data", [b"ann:wrong", b"bob:right", b"ann"])
def test_who_does_not_know_the_password_is_told_so(tmp_path: Path, data: bytes) -> None:
    async def test(broker: PulsarBroker) -> None:
        ann(broker)
        wire = broker.wire()
        wire.tell(connect(auth_method_name="basic", auth_data=data))
        await broker.settle()
        # A login that has failed is told late, so that guessing takes time.
        await broker.later(5)
        assert error_of(wire.answers()) is ServerError.AUTHENTICATION_ERROR
        assert wire.is_closed

    with_broker(tmp_path, test)


@pytest.mark.accepts("S4.5")
def test_the_earliest_position_is_the_beginning_of_the_log(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire = await broker.client()
        earliest = {"initial_position": InitialPosition.EARLIEST}
        await broker.ask(wire, subscribe("t", "all", **earliest), subscribe("t", "new", 2))
        log = broker.server.stages.kernel.log
        places = [
            found.queue.record.created_at_offset
            for name in ("all", "new")
            if (found := broker.door.subscriptions.find("t", name)) is not None
        ]
        assert places == [log.whole_from(), log.end_offset()]

    with_broker(tmp_path, test)


def test_a_malformed_command_ends_the_connection_alone(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker) -> None:
        wire: PulsarWire = await broker.client()
        other = await broker.client()
        # A LOOKUP without its fields.
        base = b"\x08\x17"
        wire.send((len(base) + 4).to_bytes(4, "big") + len(base).to_bytes(4, "big") + base)
        await broker.settle()
        assert wire.is_closed
        assert not other.is_closed
        assert len(broker.door.clients) == 1

    with_broker(tmp_path, test)
