"""Rounds of a canary beside a broker in virtual time, and what turns them red."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.client import canary as played_by
from holdfast.client.canary import Canary, Outcome, Terms
from holdfast.client.mqtt import Client, ClientOptions
from holdfast.testing.hardships import Hardships
from tests.simulation.peer import Stand, sleep, with_broker
from tests.simulation.whole import HOST, PORT

DELAY_S = 0.01
TERMS = Terms(environment="prod", reads=20)
Fault = Callable[[Stand], Awaitable[None]]


def canary(port: int = PORT) -> Canary:
    return Canary((HOST, port), ClientOptions(), TERMS, "word")


async def nothing(_stand: Stand) -> None:
    """No fault."""


async def end_session(stand: Stand) -> None:
    """Somebody ends the consumer's session while it is away."""
    (await stand.connect(TERMS.name, clean=True)).cut()


async def lose_queue(stand: Stand) -> None:
    """The session is kept, and has no subscription and no queue any more."""
    peer = await stand.connect(TERMS.name, receive_maximum=1)
    peer.send("unsubscribe", packet_identifier=1, topic_filters=[TERMS.topic_filter])
    await sleep(1)
    assert peer.of_kind("unsuback")
    peer.cut()


async def double(stand: Stand) -> None:
    """A read is stored twice."""
    await stand.publish(TERMS.topic, b"word 1 20", qos=2)


async def double_first(stand: Stand) -> None:
    """What came before the consumer went away comes again."""
    await stand.publish(TERMS.topic, b"word 1 0", qos=2)


async def disorder(stand: Stand) -> None:
    """Of two reads the later one is stored first."""
    await stand.publish(TERMS.topic, b"word 1 22", b"word 1 21", qos=2)


def played(fault: Fault) -> tuple[Outcome, Outcome, list[str]]:
    """The outcome of a round with a fault in it and of one after it, and which sessions stay."""
    outcomes: list[Outcome] = []
    left: list[str] = []

    async def body(stand: Stand) -> None:
        playing = canary()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(playing.play())
            await sleep(TERMS.away_s / 2)
            await fault(stand)
        outcomes.extend((task.result(), await playing.play()))
        peer = await stand.connect(TERMS.name)
        left.extend(TERMS.name for each in peer.of_kind("connack") if each["session_present"])

    with_broker(body, hardships=Hardships(delay_s=DELAY_S))
    return outcomes[0], outcomes[1], left


def test_a_round_is_green_and_leaves_no_session() -> None:
    first, second, left = played(nothing)
    for outcome in (first, second):
        assert not outcome.is_red, outcome
        assert (outcome.reads, outcome.lost, outcome.doubled) == (20, 0, 0)
        assert outcome.catch_up_s is not None
        assert DELAY_S / 2 < outcome.catch_up_s < 5
    assert not left


@pytest.mark.parametrize(
    ("fault", "lost", "doubled"),
    [
        (end_session, 20, 0),
        (lose_queue, None, 0),
        (double, 0, 1),
        (double_first, 0, 1),
        (disorder, 0, 0),
    ],
)
def test_a_planted_fault_turns_a_round_red_and_not_the_next(
    fault: Fault, lost: int | None, doubled: int
) -> None:
    outcome, after, left = played(fault)
    assert outcome.is_red
    if lost is None:
        assert outcome.lost > 0
        assert outcome.catch_up_s is None
    else:
        assert outcome.lost == lost
    assert outcome.doubled == doubled
    assert outcome.is_ordered == (fault is not disorder)
    assert not after.is_red, after
    assert not left


def test_a_round_without_a_broker_is_red_with_its_reason() -> None:
    outcomes: list[Outcome] = []

    async def body(_stand: Stand) -> None:
        outcomes.append(await canary(PORT + 7).play())

    with_broker(body)
    assert outcomes[0].is_red
    assert outcomes[0].reason
    assert outcomes[0].lost == 0


@pytest.mark.parametrize("turns", range(6))
def test_it_is_stopped_at_the_very_moment_at_which_its_result_is_taken(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is cancelled once; who overlooks that plays rounds for ever."""
    telling: list[asyncio.Task[None]] = []

    def stop_after(turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(stop_after, turns - 1)
        else:
            telling[0].cancel()

    class Taken(asyncio.Event):
        def set(self) -> None:
            is_news = not self.is_set()
            super().set()
            if is_news:
                stop_after(turns)

    class Told(Client):
        def __init__(self, name: str, options: ClientOptions) -> None:
            super().__init__(name, options)
            self.idle.__class__ = Taken

    monkeypatch.setattr(played_by, "Client", Told)

    async def tell_and_go_on() -> None:
        await canary().tell(b"green")
        await asyncio.Event().wait()

    async def body(_stand: Stand) -> None:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
            telling.append(tasks.create_task(tell_and_go_on()))
            await asyncio.wait(telling)
        assert telling[0].cancelled()

    with_broker(body)
