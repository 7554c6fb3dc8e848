"""Bridges in a circle that counts no hops: it is found by what no longer comes, and ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.broker.bridge.circulation import AGAIN_RATE
from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import Link, State
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.simulation.pair import Device, connect
from tests.simulation.sites import Site, carries

Body = Callable[[dict[str, Site]], Awaitable[None]]
Ways = dict[tuple[str, str], tuple[str, str]]
"""From which site to which: what is carried, and as what."""
FOUND_WITHIN_S = 120
DELAY_S = 0.004
SAME = ("t/#", "{#}")
PAIR: Ways = {("a", "b"): SAME, ("b", "a"): SAME}
RING: Ways = {("a", "b"): SAME, ("b", "c"): SAME, ("c", "a"): SAME}
BY_311 = {"protocol_version": "3.1.1"}
MESSAGES = [b"%d" % number for number in range(6)]


def with_sites(ways: Ways, body: Body, **bridge: Any) -> None:
    """Runs `body` with these sites joined."""

    async def main(loop: VirtualLoop) -> None:
        sites = {name: Site(loop, name) for name in sorted({name for way in ways for name in way})}
        for (near, far), (topic_filter, destination) in ways.items():
            carried = carries(topic_filter, destination=destination)
            sites[near].join(far, local_subscriptions=[carried], **bridge)
        for site in sites.values():
            await site.start()
        await asyncio.sleep(5)
        await body(sites)

    simulate(main, seed=1, repeat="this test", hardships=Hardships(delay_s=DELAY_S))


def links(sites: dict[str, Site]) -> list[Link]:
    return [link for site in sites.values() for link in site.server.stages.bridges.links()]


def crossings(sites: dict[str, Site]) -> int:
    """Messages that have left a site for another one."""
    return sum(link.queue.carried().sent for link in links(sites))


async def publish(site: Site, qos: int, *payloads: bytes) -> Device:
    publisher = await connect(site, "publisher")
    for identifier, payload in enumerate(payloads, 1):
        publisher.publish("t/x", payload, qos=qos, identifier=identifier)
    await asyncio.sleep(1)
    return publisher


@pytest.mark.parametrize(("ways", "qos"), [(PAIR, 0), (PAIR, 2), (RING, 1)])
def test_a_circle_over_mqtt_3_1_1_is_found_and_ended(ways: Ways, qos: int) -> None:
    async def body(sites: dict[str, Site]) -> None:
        await publish(sites["a"], qos, *MESSAGES)
        before = crossings(sites)
        await asyncio.sleep(1)
        assert crossings(sites) - before > AGAIN_RATE, "it goes round"
        await asyncio.sleep(FOUND_WITHIN_S)
        before = crossings(sites)
        await asyncio.sleep(60)
        assert crossings(sites) == before, "nothing goes round any more"
        (ended, *_) = [link for link in links(sites) if link.state is State.LOOPING]
        assert ended.last_error.startswith("what it sends comes back to it")
        assert ended.counts.failures == {Failure.LOOP: 1}
        assert ended.next_attempt_at_us is None
        assert [each.kind for each in ended.events] == ["connected", *["held"] * 3, "looping"]

    with_sites(ways, body, **BY_311)


def test_a_circle_over_mqtt_5_is_found_where_loop_prevention_is_off() -> None:
    async def body(sites: dict[str, Site]) -> None:
        await publish(sites["a"], 1, *MESSAGES)
        await asyncio.sleep(FOUND_WITHIN_S)
        assert any(link.state is State.LOOPING for link in links(sites))

    # What a filter of its own matches again is refused where a bridge is made, so it takes two.
    ways = {("a", "b"): ("t/#", "u/{2}"), ("b", "a"): ("u/#", "t/{2}")}
    with_sites(ways, body, loop_prevention=False)


def test_a_bridge_that_leads_away_from_a_circle_goes_on() -> None:
    async def body(sites: dict[str, Site]) -> None:
        await publish(sites["a"], 1, *MESSAGES)
        await asyncio.sleep(FOUND_WITHIN_S)
        assert sites["a"].link("c").state is State.CONNECTED
        assert any(link.state is State.LOOPING for link in links(sites))

    with_sites(PAIR | {("a", "c"): SAME}, body, **BY_311)


def test_what_came_since_waits_until_the_bridge_is_started_again() -> None:
    async def body(sites: dict[str, Site]) -> None:
        await publish(sites["a"], 1, *MESSAGES)
        await asyncio.sleep(FOUND_WITHIN_S)
        (name,) = [name for name in "ab" if links({name: sites[name]})[0].state is State.LOOPING]
        far = "ba"["ab".index(name)]
        # The circle is taken apart at its other side.
        sites[far].server.stages.bridges.run(name, False, sites[far].server.now_us())
        collector = await connect(sites[far], "collector", "t/#")
        publisher = await connect(sites[name], "late")
        publisher.publish("t/late", b"late", qos=1, identifier=1)
        await asyncio.sleep(5)
        assert b"late" not in collector.payloads()
        bridges = sites[name].server.stages.bridges
        bridges.run(far, True, sites[name].server.now_us())
        await asyncio.sleep(5)
        assert collector.payloads().count(b"late") == 1
        await asyncio.sleep(FOUND_WITHIN_S)
        assert sites[name].link(far).state is State.CONNECTED

    with_sites(PAIR, body, **BY_311)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_device_that_says_the_same_all_the_time_is_no_circle(qos: int) -> None:
    async def body(sites: dict[str, Site]) -> None:
        device = await connect(sites["a"], "device")
        link, number = sites["a"].link("b"), 0
        for _ in range(FOUND_WITHIN_S * 10):
            for _ in range(AGAIN_RATE // 5):
                number += 1
                device.publish("t/x", b"on", qos=qos, identifier=1 + number % 60_000 if qos else 0)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        assert link.state is State.CONNECTED
        assert [each.kind for each in link.events].count("held") in (2, 3, 4)
        assert link.queue.carried().sent == number, "what was held went on, each once"

    with_sites({("a", "b"): SAME}, body, **BY_311)
