"""What a bridge's queue leaves out, by excludes or since it goes at QoS 0, does not wait: it takes
no room of what waits, is no loss, and costs nobody anything."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from holdfast.broker.chores import at_once
from holdfast.broker.observe.bridges import BridgesSeen, BridgeStanding
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.state.broker import look_at
from holdfast.core.bridge import LocalSubscription
from tests.simulation.remote import Bridged, topics, with_remote
from tests.simulation.test_link_changes import KEPT, LONGEST_WAIT_S, MADE, Keeper, cut, put

WITHOUT_DEBUG = {"filters": ["up/#"], "excludes": ["up/debug/#"]}
LEFT_OUT = 10


async def publish(bridged: Bridged, *wanted: str) -> None:
    """Each of these with as many beside it that are not for the remote."""
    for topic in wanted:
        await bridged.publish(topic, b"", qos=1)
        await bridged.publish("up/debug/x", *[b""] * LEFT_OUT, qos=1)


async def come_back(remote: Keeper) -> None:
    remote.is_away = False
    await asyncio.sleep(LONGEST_WAIT_S)


def carried(remote: Keeper) -> list[str]:
    return [topic for topic in topics(remote) if not topic.startswith("up/debug")]


async def standing(bridged: Bridged) -> BridgeStanding:
    broker = look_at(bridged.server, "")
    found = await BridgesSeen(broker, Forecast(broker)).show("b")
    assert found is not None
    return found


def listed(bridged: Bridged) -> list[int]:
    """Offsets of the messages that are told."""
    broker = look_at(bridged.server, "")
    contents, inquiry = broker.bridges.contents("b"), broker.log.inquire()
    assert contents is not None
    found, begin, end = [], 0, broker.log.durable_offset()
    while (begin := at_once(contents.first(begin, end, inquiry))) < end:
        found.append(begin)
        begin += 1
    return found


# --- what is lost --------------------------------------------------------------------------------


@pytest.mark.accepts("S1.69")
@pytest.mark.parametrize(
    "carries",
    [
        [WITHOUT_DEBUG],
        [{"filters": ["up/debug/#"], "persist": False}, {"filters": ["up/+"]}],
        [{"filters": ["up/debug/#"], "max_qos": 0}, {"filters": ["up/+"]}],
    ],
)
def test_what_never_waits_takes_no_room_of_what_does(carries: list[dict[str, Any]]) -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await publish(bridged, "up/1", "up/2")
        await come_back(remote)
        assert carried(remote) == ["up/1", "up/2"]
        assert bridged.losses() == []
        cut(remote)
        await publish(bridged, *(f"up/{number}" for number in range(3, 10)))
        await come_back(remote)
        newest = [f"up/{number}" for number in range(5, 10)]
        assert carried(remote) == ["up/1", "up/2", *newest]
        assert bridged.losses() == [("b", "overflow", 2)]

    remote = Keeper()
    with_remote(body, remote, KEPT, queue_limit=5, local_subscriptions=carries)


def test_what_both_a_subscription_at_qos_0_and_another_match_waits() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await bridged.publish("up/alarm", b"1", b"2", b"3", qos=1)
        await come_back(remote)
        assert carried(remote) == ["up/alarm"] * 2
        assert bridged.losses() == [("b", "overflow", 1)]

    remote = Keeper()
    both = [{"filters": ["up/#"], "persist": False}, {"filters": ["up/alarm"]}]
    with_remote(body, remote, KEPT, queue_limit=2, local_subscriptions=both)


def test_what_never_waited_is_not_lost_with_a_bridge_that_is_removed() -> None:
    async def body(bridged: Bridged) -> None:
        without = LocalSubscription(filters=("up/#",), excludes=("up/debug/#",))
        await put(bridged, structs.replace(MADE, local_subscriptions=(without,)))
        cut(remote)
        await publish(bridged, "up/1")
        bridged.server.stages.bridges.remove("made", 0)
        await asyncio.sleep(5)
        assert bridged.losses() == [("made", "session_ended", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT, local_subscriptions=[WITHOUT_DEBUG])


def test_what_never_waited_is_not_refused_by_a_remote_of_qos_0() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await publish(bridged, "up/1")
        remote.properties = {"maximum_qos": 0}
        await come_back(remote)
        assert bridged.losses() == [("b", "refused", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT, local_subscriptions=[WITHOUT_DEBUG])


@pytest.mark.parametrize(("limit", "kept"), [(3, 3), (2, 2), (0, 0)])
def test_what_outlives_the_logs_end_is_counted_without_what_never_waits(
    limit: int, kept: int
) -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        for number in range(3):
            await bridged.publish(f"up/{number}", b"", qos=1)
            await bridged.publish("up/debug/x", *[bytes(4_000)] * 20, qos=1)
        await bridged.publish("up/debug/x", *[bytes(4_000)] * 60, qos=1)
        await asyncio.sleep(30)
        assert bridged.server.stages.kernel.log.whole_from() > 60
        await come_back(remote)
        assert carried(remote) == [f"up/{number}" for number in range(3 - kept, 3)]
        assert sum(count for _, _, count in bridged.losses()) == 3 - kept

    remote = Keeper()
    config = replace(KEPT, retention_bytes=KEPT.segment_bytes)
    carries = [WITHOUT_DEBUG]
    with_remote(body, remote, config, queue_limit=limit, local_subscriptions=carries)


def test_what_waited_for_a_filter_that_has_gone_is_on_the_ledger_beside_excludes_too() -> None:
    async def body(bridged: Bridged) -> None:
        await put(bridged, MADE)
        cut(remote)
        await bridged.publish("x/a", b"1", qos=1)
        await bridged.publish("x/b", b"2", qos=1)
        only_a = LocalSubscription(filters=("x/a",), excludes=("x/secret",))
        await put(bridged, structs.replace(MADE, local_subscriptions=(only_a,)))
        await come_back(remote)
        assert topics(remote) == ["x/a"]
        assert bridged.losses() == [("made", "denied", 1)]

    remote = Keeper()
    with_remote(body, remote, KEPT)


# --- what is told --------------------------------------------------------------------------------


def test_an_exclude_hides_nothing_of_an_earlier_subscription() -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await asyncio.sleep(1)
        await bridged.publish("up/a", b"1", b"2", b"3", qos=1)
        await bridged.publish("up/b", b"4", qos=1)
        assert (await standing(bridged)).ahead.messages == 4
        assert listed(bridged) == [0, 1, 2, 3]
        await come_back(remote)
        assert sorted(topics(remote)) == ["rest/up/b", "up/a", "up/a", "up/a"]

    remote = Keeper()
    others = {"filters": ["up/#"], "excludes": ["up/a"], "destination": "rest/{#}"}
    with_remote(body, remote, KEPT, local_subscriptions=[{"filters": ["up/a"]}, others])


@pytest.mark.parametrize("begins_with", [0, 1])
def test_much_that_is_left_out_costs_little_to_pass_by(begins_with: int) -> None:
    async def body(bridged: Bridged) -> None:
        cut(remote)
        await asyncio.sleep(1)
        await bridged.publish("up/1", *[b""] * begins_with, qos=1)
        for _ in range(50):
            await bridged.publish("up/debug/x", *[b""] * 100, qos=1)
        await bridged.publish("up/2", b"", qos=1)
        before = bridged.server.stages.kernel.log.effort()
        assert (await standing(bridged)).ahead.messages == begins_with + 1
        assert len(listed(bridged)) == begins_with + 1
        # A question for each would be some five million.
        assert bridged.server.stages.kernel.log.effort() - before < 250_000

    remote = Keeper()
    config = replace(KEPT, retention_bytes=1 << 30)
    carries = [WITHOUT_DEBUG]
    with_remote(body, remote, config, local_subscriptions=carries, remote_subscriptions=[])
