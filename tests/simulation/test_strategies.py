"""How a group shares, in virtual time: each strategy as a client sees it, and the order of each key
while members come and go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.store.questions import Inquiry
from holdfast.core.config import Config
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG
from tests.simulation.workers import Book, Worker, hire

GROUP = "$share/workers/reads/#"
KEYS = 11
"""A prime, so that taking turns does not give a key to the same member by chance."""
BY_KEY = ["key:topic", "key:client", "key:property:reader"]


def shared(strategy: str, **settings: Any) -> Config:
    return replace(CONFIG, shared_strategy=strategy, **settings)


def payloads(peer: Peer) -> list[bytes]:
    return [fields["payload"] for fields in peer.of_kind("publish")]


async def member(stand: Stand, name: str, qos: int = 1, **properties: Any) -> Peer:
    peer = await stand.connect(name, **properties)
    await stand.subscribe(peer, GROUP, qos)
    return peer


def numbers(count: int, since: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(since, since + count)]


def describe(stand: Stand) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """What an operator sees of the group: itself, shares, keys."""
    stages = stand.server.stages

    def client_of(connection: int) -> str:
        attached = stages.sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier

    groups = stages.groups
    queued = at_once(groups.queued(GROUP, Inquiry(stages.kernel.log)))
    return (
        groups.describe(GROUP, client_of) | {"queued": queued},
        groups.shares(GROUP, client_of),
        groups.keys(GROUP, client_of),
    )


def test_who_has_least_in_flight_gets_the_next_message() -> None:
    async def body(stand: Stand) -> None:
        brisk, slow = await member(stand, "brisk"), await member(stand, "slow")
        await stand.publish("reads/1", *numbers(10))
        assert (len(payloads(brisk)), len(payloads(slow))) == (5, 5)
        brisk.acknowledge("puback", *range(1, 6))
        await stand.publish("reads/1", *numbers(4, 10))
        assert (len(payloads(brisk)), len(payloads(slow))) == (9, 5)
        seen, shares, _ = describe(stand)
        assert seen["strategy"] == "least_in_flight"
        share = {"qos": 1, "key_slots": 0}
        assert shares == [
            {"client_identifier": "brisk", "delivered": 9, "in_flight": 4, **share},
            {"client_identifier": "slow", "delivered": 5, "in_flight": 5, **share},
        ]

    with_broker(body, shared("least_in_flight"))


@pytest.mark.parametrize("qos", [0, 1])
def test_the_same_member_gets_everything_as_long_as_it_has_room_and_is_there(qos: int) -> None:
    async def body(stand: Stand) -> None:
        members = [await member(stand, name, qos, receive_maximum=10) for name in "ab"]
        await stand.publish("reads/1", *numbers(8), qos=qos)
        assert [payloads(each) for each in members] == [numbers(8), []]
        if qos:
            await stand.publish("reads/1", *numbers(4, 8))
            assert [payloads(each) for each in members] == [numbers(10), numbers(2, 10)]
        members[1].forget()
        members[0].cut()
        await stand.publish("reads/1", b"new", qos=qos)
        assert payloads(members[1]) == (numbers(8) if qos else [b"new"]), "what came back is first"

    with_broker(body, shared("sticky"))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("strategy", BY_KEY)
def test_each_key_stays_with_one_member(strategy: str, qos: int) -> None:
    async def body(stand: Stand) -> None:
        members = [await member(stand, name, 2) for name in "abc"]
        for round_ in range(4):
            for key in range(30):
                publisher = await stand.connect(f"reader-{key}", clean=True)
                await publish(publisher, strategy, key, round_, qos)
                publisher.cut()
        owners = {}
        for index, each in enumerate(members):
            for payload in payloads(each):
                key, _ = payload.decode().split(":")
                assert owners.setdefault(key, index) == index
        assert len(owners) == 30
        assert set(owners.values()) == {0, 1, 2}, "each has some"
        _, shares, _ = describe(stand)
        assert [share["delivered"] for share in shares] == [len(payloads(m)) for m in members]
        assert {share["key_slots"] for share in shares} <= {65_536 // 1_024 * n for n in (341, 342)}

    with_broker(body, shared(strategy))


async def publish(publisher: Peer, strategy: str, key: int, number: int, qos: int = 1) -> None:
    """A message whose key, as the strategy has it, is `key`."""
    topic = f"reads/{key}" if strategy == "key:topic" else f"reads/{number % 3}"
    properties = {}
    if strategy.startswith("key:property"):
        properties = {"user_property": [("site", "x"), ("reader", str(key))]}
    publisher.send(
        "publish",
        packet_identifier=number % 60_000 + 1 if qos else 0,
        qos=qos,
        retain=False,
        dup=False,
        topic_name=topic,
        payload=b"%d:%d" % (key, number),
        properties=properties,
    )
    await sleep(0.01)


async def load(stand: Stand, strategy: str, seconds: int, counts: list[int]) -> None:
    """Publishers with a key each, until the time is over."""
    publishers = [await stand.connect(f"reader-{key}", clean=True) for key in range(KEYS)]
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        for key, publisher in enumerate(publishers):
            await publish(publisher, strategy, key, counts[key])
            counts[key] += 1
    await sleep(2)


Change = Callable[[Stand, Book, list[Worker]], Awaitable[None]]


async def one_to_five_to_two(stand: Stand, book: Book, workers: list[Worker]) -> None:
    for index in range(1, 5):
        await sleep(2)
        workers.append(await hire(stand, f"worker-{index}", book, GROUP, seed=index))
    await sleep(5)
    await workers.pop(0).leave(stand)
    await sleep(3)
    await workers.pop(1).leave(stand, GROUP)
    await sleep(3)
    await workers.pop(0).leave(stand)


def scaled(
    strategy: str, change: Change, published_by: str | None = None
) -> tuple[Book, list[int]]:
    """Members come and go under load; returns what they saw, and how much there was."""
    book, counts = Book(), [0] * KEYS

    async def body(stand: Stand) -> None:
        workers = [await hire(stand, "worker-0", book, GROUP)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load(stand, published_by or strategy, 30, counts))
            tasks.create_task(change(stand, book, workers))
        await sleep(30)
        for worker in workers:
            assert worker.count > 0
            await worker.leave(stand)

    with_broker(body, shared(strategy))
    return book, counts


@pytest.mark.accepts("S4.132", "S4.164", "S4.165")
@pytest.mark.parametrize("strategy", BY_KEY)
def test_order_of_each_key_never_breaks_while_one_becomes_five_and_then_two(strategy: str) -> None:
    book, counts = scaled(strategy, one_to_five_to_two)
    assert min(counts) > 100
    assert not book.violations, book.violations[:5]
    assert {key: len(done) for key, done in book.done.items()} == {
        str(key): count for key, count in enumerate(counts)
    }


@pytest.mark.parametrize("strategy", ["round_robin", "least_in_flight"])
def test_without_keys_the_judge_sees_that_order_breaks(strategy: str) -> None:
    book, counts = scaled(strategy, one_to_five_to_two)
    assert book.violations
    assert all(len(book.done[str(key)]) == count for key, count in enumerate(counts))


def test_a_member_that_stalls_holds_up_its_own_keys_alone() -> None:
    book, counts = Book(), [0] * KEYS

    async def body(stand: Stand) -> None:
        stalled = await hire(stand, "stalled", book, GROUP, receive_maximum=10)
        brisk = await hire(stand, "brisk", book, GROUP)
        stalled.stalls = True
        await load(stand, "key:topic", 20, counts)
        seen, shares, keys = describe(stand)
        held = {str(key) for key, _ in stalled.open.values()}
        others = {str(key) for key in range(KEYS)} - held
        assert 0 < len(held) < KEYS
        for key in others:
            assert len(book.done[key]) == counts[int(key)], "everything of other keys is done"
        assert seen["queued"] == keys["waiting"] > 0
        assert {row["client_identifier"] for row in keys["held"]} == {"stalled"}
        assert sum(row["in_flight"] for row in keys["held"]) == shares[0]["in_flight"] == 10
        assert all(row["since_us"] < stand.server.now_us() - 10_000_000 for row in keys["held"])
        stalled.stalls = False
        await sleep(30)
        assert all(len(book.done[str(key)]) == count for key, count in enumerate(counts))
        assert describe(stand)[2] == {"waiting": 0, "held": []}
        await stalled.leave(stand)
        await brisk.leave(stand)

    with_broker(body, shared("key:topic"))
    assert not book.violations


def test_a_running_broker_takes_over_another_strategy() -> None:
    async def body(stand: Stand) -> None:
        a, b = await member(stand, "a"), await member(stand, "b")
        await stand.publish("reads/1", *numbers(2))
        assert [payloads(each) for each in (a, b)] == [[b"0"], [b"1"]]
        settings = {"shared_strategies": ("other=sticky", "work*=key:topic")}
        stand.server.stages.groups.reconfigure(shared("round_robin", **settings))
        assert describe(stand)[0]["strategy"] == "key:topic"
        assert stand.server.stages.groups.by_strategy == {"key:topic": 1}
        await stand.publish("reads/1", *numbers(4, 2))
        assert [len(payloads(each)) for each in (a, b)] == [1, 1], "a key may be in two hands yet"
        a.acknowledge("puback", 1)
        b.acknowledge("puback", 1)
        await sleep(1)
        assert sorted(len(payloads(each)) for each in (a, b)) == [1, 5]
        assert numbers(4, 2) in (payloads(a)[1:], payloads(b)[1:])

    with_broker(body)


@pytest.mark.parametrize("strategy", BY_KEY)
def test_order_of_each_key_holds_from_when_a_busy_group_takes_over_a_strategy(
    strategy: str,
) -> None:
    async def change(stand: Stand, book: Book, workers: list[Worker]) -> None:
        workers.append(await hire(stand, "worker-1", book, GROUP, seed=1))
        workers.append(await hire(stand, "worker-2", book, GROUP, seed=2))
        await sleep(20)
        assert book.violations, "without keys"
        stand.server.stages.groups.reconfigure(shared(strategy))
        await sleep(0.1)
        book.violations.clear()
        await sleep(5)
        await workers.pop(1).leave(stand)

    book, counts = scaled("round_robin", change, published_by=strategy)
    assert not book.violations, book.violations[:5]
    assert all(len(book.done[str(key)]) == count for key, count in enumerate(counts))


def test_a_backlog_keeps_the_order_of_its_keys_after_a_power_cut() -> None:
    book, counts = Book(), [0] * KEYS

    async def body(stand: Stand) -> None:
        first = await hire(stand, "first", book, GROUP)
        await first.leave(stand)
        await load(stand, "key:property:reader", 20, counts)
        stand.cut_power()
        await sleep(2)
        members = [
            await hire(stand, f"member-{n}", book, GROUP, seed=n, receive_maximum=20)
            for n in range(3)
        ]
        await sleep(5)
        await members[1].leave(stand)
        await sleep(60)
        assert all(len(book.done[str(key)]) == count for key, count in enumerate(counts))
        await members[0].leave(stand)
        await members[2].leave(stand)

    with_broker(body, shared("key:property:reader"))
    assert not book.violations, book.violations[:5]
