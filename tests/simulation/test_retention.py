"""What goes with old segments: on record before it is gone, and once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.broker.chores import at_once
from holdfast.core.config import Config
from holdfast.testing.hardships import Hardships
from tests.simulation.peer import Peer, Stand, with_broker
from tests.simulation.whole import CONFIG

KEPT = 20
"""Messages that a queue may have."""
SENT = 120
CONFIGURED: Config = replace(
    CONFIG, retention_bytes=3 * CONFIG.segment_bytes, queue_messages_maximum=KEPT
)
SLOW_WORKER = Hardships(disk_latency_s=0.05, executor_latency_s=0.05)
SLOW_DISK = Hardships(disk_latency_s=0.15, executor_latency_s=0.001)
WRITTEN_AHEAD = "segment-ahead.partial"
TICK_S = 0.002
TICKS_MAXIMUM = 30_000


async def away(stand: Stand, name: str, topic: str) -> None:
    """A session that waits for messages, and has gone."""
    peer = await stand.connect(name)
    await stand.subscribe(peer, topic, 1)
    peer.cut()
    await asyncio.sleep(1)


async def fill(stand: Stand, topic: str) -> None:
    """More than is kept."""
    for number in range(0, SENT, 20):
        payloads = [b"%d %s" % (each, bytes(4_000)) for each in range(number, number + 20)]
        await stand.publish(topic, *payloads)


async def until(happened: Callable[[], bool]) -> None:
    """Returns within a tick of it."""
    for _ in range(TICKS_MAXIMUM):
        if happened():
            return
        await asyncio.sleep(TICK_S)
    raise TimeoutError


async def come_back(stand: Stand, name: str) -> list[int]:
    """What a session gets; it acknowledges all of it."""
    peer = await stand.connect(name)
    await asyncio.sleep(2)
    peer.acknowledge("puback", *(fields["packet_identifier"] for fields in messages(peer)))
    await asyncio.sleep(1)
    numbers = [int(fields["payload"].split()[0]) for fields in messages(peer)]
    peer.cut()
    await asyncio.sleep(1)
    return numbers


def messages(peer: Peer) -> list[dict[str, object]]:
    return peer.of_kind("publish")


def has_gone(stand: Stand) -> bool:
    """A segment of the beginning is gone, or as good as gone: what is left of it has its name."""
    files = stand.files()
    return "segment-0000000001.log" not in files or any(
        name.startswith("carry-") and name.endswith(".log") for name in files
    )


def lost_by(stand: Stand, name: str) -> int:
    return sum(count for client, _, count in stand.losses() if client == name)


def run(body: Callable[[Stand], Awaitable[None]], *hardships: Hardships) -> None:
    for each in hardships:
        with_broker(body, CONFIGURED, each)


def test_what_a_queue_at_rest_loses_is_on_record_when_its_segment_goes() -> None:
    async def story(stand: Stand) -> None:
        await away(stand, "away", "t")
        await fill(stand, "t")
        await until(lambda: has_gone(stand))
        stand.cut_power()
        await asyncio.sleep(3)
        assert lost_by(stand, "away") > 0
        numbers = await come_back(stand, "away")
        assert len(numbers) <= KEPT
        assert numbers == list(range(SENT - len(numbers), SENT))
        assert lost_by(stand, "away") + len(numbers) == SENT, "told once, and nothing else is gone"

    run(story, SLOW_WORKER, SLOW_DISK)


def test_what_an_attached_queue_loses_is_on_record_when_its_segment_goes() -> None:
    async def story(stand: Stand) -> None:
        slow = await stand.connect("slow", receive_maximum=1)
        await stand.subscribe(slow, "t", 1)
        await fill(stand, "t")
        await until(lambda: has_gone(stand))
        stand.cut_power()
        await asyncio.sleep(3)
        lost = lost_by(stand, "slow")
        assert 0 < lost <= SENT - KEPT

    run(story, SLOW_WORKER, SLOW_DISK)


def test_a_session_that_comes_back_while_its_messages_are_copied_gets_each_once() -> None:
    async def story(stand: Stand) -> None:
        await away(stand, "away", "kept")
        await stand.publish("kept", *(b"%d " % number for number in range(5)))
        await fill(stand, "t")
        await until(lambda: any("carry" in name for name in stand.files()))
        assert await come_back(stand, "away") == list(range(5))
        await until(lambda: "segment-0000000001.log" not in stand.files())
        assert await come_back(stand, "away") == []
        assert stand.losses() == []

    run(story, SLOW_WORKER)


def test_a_stop_in_the_middle_of_a_run_loses_nothing() -> None:
    async def story(stand: Stand) -> None:
        await away(stand, "away", "kept")
        await stand.publish("kept", *(b"%d " % number for number in range(5)))
        await fill(stand, "t")
        await until(lambda: any(name.endswith("log.partial") for name in stand.files()))
        await stand.restart()
        assert await come_back(stand, "away") == list(range(5))

    run(story, SLOW_WORKER)


def test_what_is_driven_again_outlives_its_segment() -> None:
    async def story(stand: Stand) -> None:
        await stand.publish("kept", *(b"%d " % number for number in range(5)))
        await away(stand, "away", "kept")
        stages, now_us = stand.server.stages, stand.server.now_us()
        target = stages.sessions.target("away")
        assert target is not None
        found = at_once(stages.redrives.look([(0, 5)], target))
        assert stages.redrives.begin(1, found, target, now_us) == 5
        await fill(stand, "t")
        await until(lambda: "segment-0000000001.log" not in stand.files())
        assert await come_back(stand, "away") == list(range(5))

    run(story, SLOW_WORKER)


def test_what_is_going_is_not_driven_again() -> None:
    async def story(stand: Stand) -> None:
        await away(stand, "away", "t")
        await fill(stand, "t")
        await until(lambda: any(name.endswith("log.partial") for name in stand.files()))
        stages, now_us = stand.server.stages, stand.server.now_us()
        target = stages.sessions.target("away")
        assert target is not None
        before = stages.kernel.log.begin_offset()
        found = at_once(stages.redrives.look([(0, SENT)], target))
        gone = found.gone
        stages.redrives.begin(1, found, target, now_us)
        await until(lambda: stages.kernel.log.begin_offset() > before)
        assert gone == [(0, stages.kernel.log.begin_offset())]

    run(story, SLOW_WORKER)


def test_what_was_carried_before_is_told_apart_from_what_goes_now() -> None:
    async def story(stand: Stand) -> None:
        await away(stand, "away", "t")
        await stand.publish("t", *(b"%d %s" % (number, bytes(2_000)) for number in range(15)))
        await fill(stand, "u")
        await until(lambda: has_gone(stand))
        await fill(stand, "t")
        await asyncio.sleep(30)
        numbers = await come_back(stand, "away")
        assert 0 < len(numbers) <= KEPT
        assert numbers == list(range(SENT - len(numbers), SENT))
        assert lost_by(stand, "away") + len(numbers) == SENT + 15

    run(story, SLOW_WORKER)


def test_who_needed_nothing_of_what_has_gone_has_lost_nothing() -> None:
    async def story(stand: Stand) -> None:
        here = await stand.connect("here")
        await stand.subscribe(here, "other", 1)
        await fill(stand, "u")
        await until(lambda: "segment-0000000001.log" not in stand.files())
        stand.cut_power()
        await asyncio.sleep(3)
        # After a crash it reads from before what has gone, and finds no hole there.
        assert await come_back(stand, "here") == []
        await asyncio.sleep(2)
        assert stand.losses() == []

    run(story, SLOW_WORKER)


def test_a_segment_is_written_ahead_while_one_fills_and_no_message_waits_for_it() -> None:
    async def story(stand: Stand) -> None:
        payload = bytes(CONFIGURED.segment_bytes // 3)
        await stand.publish("t", payload)
        await until(lambda: WRITTEN_AHEAD in stand.files())
        await stand.publish("t", payload, payload)
        await until(lambda: {"segment-0000000002.log", WRITTEN_AHEAD} <= {*stand.files()})
        stand.cut_power()
        await asyncio.sleep(3)
        assert stand.server.stages.kernel.log.end_offset() == 3

    run(story, SLOW_WORKER, SLOW_DISK)
