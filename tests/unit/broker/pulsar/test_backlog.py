"""What waits in durable subscriptions, as an operator sees it: with consumers and without."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast.broker.observe.subscriptions import SubscriptionsSeen
from holdfast.broker.observe.watch import STUCK_AFTER_S, Watch
from holdfast.broker.state.broker import Broker, look_at
from holdfast.protocols.pulsar.fields import CloseConsumer, Unsubscribe
from tests.builders.entries import entry, flow, send
from tests.builders.pulsar import PulsarBroker, producer, subscribe

BATCH = entry([b"a", b"b", b"c"])

Test = Callable[[PulsarBroker, Broker], Awaitable[None]]


def with_broker(directory: Path, test: Test, **settings: Any) -> None:
    async def run() -> None:
        broker = PulsarBroker(directory, **settings)
        await test(broker, look_at(broker.server, str(directory / "view")))
        await broker.server.stop()

    asyncio.run(run())


async def look(broker: PulsarBroker, observer: Watch | SubscriptionsSeen) -> None:
    """Some seconds pass, in each of which it looks."""
    for _ in range(12):
        broker.world.time_us += 1_000_000
        observer.look(broker.world.time_us)
        await broker.settle()


async def published(broker: PulsarBroker, entries: int, first: int = 0) -> None:
    wire = await broker.client()
    await broker.ask(wire, producer("t"))
    await broker.send(wire, *(send(1, first + 3 * it, BATCH, 3) for it in range(entries)))
    wire.drop()
    await broker.settle()


def test_what_waits_is_counted_whether_somebody_consumes_or_not(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker, seen: Broker) -> None:
        subscriptions = SubscriptionsSeen(seen)
        wire = await broker.client()
        await broker.ask(wire, subscribe("t", "alone", 1), subscribe("t", "taken", 2))
        await broker.ask(wire, CloseConsumer(consumer_id=1, request_id=3))
        await published(broker, 4)
        await broker.send(wire, flow(2, 3))
        stored_at_us = broker.world.time_us
        await look(broker, subscriptions)
        alone, taken = subscriptions.oldest
        assert (alone.topic_name, alone.name, alone.consumers, alone.waiting) == (
            *("t", "alone", 0),
            12,
        )
        # It has been given three that are not acknowledged.
        assert (taken.name, taken.consumers, taken.waiting) == ("taken", 1, 9)
        assert taken.oldest_at_us == stored_at_us
        assert (subscriptions.count, subscriptions.waiting_messages) == (2, 21)
        await broker.ask(wire, Unsubscribe(consumer_id=2, request_id=4))
        await look(broker, subscriptions)
        assert [each.name for each in subscriptions.oldest] == ["alone"]

    with_broker(tmp_path, test)


def test_a_consumer_that_asks_for_nothing_is_among_those_who_are_stuck(tmp_path: Path) -> None:
    async def test(broker: PulsarBroker, seen: Broker) -> None:
        watch = Watch(seen)
        wire = await broker.client()
        await broker.ask(wire, subscribe("t", "mine", 1))
        await published(broker, 1)
        for _ in range(STUCK_AFTER_S // 12 + 2):
            await look(broker, watch)
        assert (watch.queues_behind, watch.backlog_messages) == (1, 3)
        assert watch.stuck == {"unacknowledged": 1}
        (behind,) = watch.busiest
        assert (behind.client_identifier, behind.messages) == ("subscription/mine/t", 3)

    with_broker(tmp_path, test, pulsar_keep_alive_s=3_600)
