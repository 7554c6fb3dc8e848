"""Bridges that lead back to where a message came from: each broker gets it once, and it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.simulation.pair import Device, connect
from tests.simulation.sites import Site, carries

Body = Callable[[dict[str, Site], dict[str, Device]], Awaitable[None]]
COUNT = 10


def with_sites(ways: list[tuple[str, str]], body: Body, **bridge: Any) -> None:
    """Runs `body` with these sites joined, and a collector at each."""

    async def main(loop: VirtualLoop) -> None:
        sites = {name: Site(loop, name) for name in sorted({name for way in ways for name in way})}
        for near, far in ways:
            terms = {"local_subscriptions": [carries("t/#")]} | bridge
            sites[near].join(far, **terms)
        for site in sites.values():
            await site.start()
        await asyncio.sleep(5)
        assert all(site.is_drained() for site in sites.values())
        devices = {name: await connect(site, "collector", "#") for name, site in sites.items()}
        await body(sites, devices)

    simulate(main, seed=1, repeat="this test", hardships=Hardships())


async def publish(site: Site) -> list[bytes]:
    publisher = await connect(site, "publisher")
    payloads = [b"%d" % number for number in range(COUNT)]
    for identifier, payload in enumerate(payloads, 1):
        publisher.publish("t/x", payload, qos=1 + identifier % 2, identifier=identifier)
    await asyncio.sleep(30)
    return sorted(payloads)


def crossings(site: Site) -> int:
    """Messages that have left a site."""
    return sum(len(wire.of_kind("publish")) for wire in site.wires.values())


RING = [("a", "b"), ("b", "c"), ("c", "a")]
MESH = [(near, far) for near in "abc" for far in "abc" if near != far]


@pytest.mark.parametrize(
    ("ways", "hop_limit", "everywhere", "crossed"),
    [
        (RING, 2, "abc", 2),
        (RING, 1, "ab", 1),
        (MESH, 1, "abc", 2),
        ([("a", "b"), ("b", "a")], 1, "ab", 1),
    ],
)
def test_each_broker_gets_a_message_once_and_the_count_ends_its_way(
    ways: list[tuple[str, str]], hop_limit: int, everywhere: str, crossed: int
) -> None:
    async def body(sites: dict[str, Site], devices: dict[str, Device]) -> None:
        published = await publish(sites["a"])
        for name, device in devices.items():
            assert sorted(device.payloads()) == (published if name in everywhere else [])
        assert sum(crossings(site) for site in sites.values()) == crossed * COUNT

    with_sites(ways, body, hop_limit=hop_limit)


def test_one_hop_more_than_a_ring_has_brings_a_message_back_once() -> None:
    async def body(sites: dict[str, Site], devices: dict[str, Device]) -> None:
        published = await publish(sites["a"])
        assert sorted(devices["a"].payloads()) == sorted(published * 2)
        assert sorted(devices["b"].payloads()) == sorted(devices["c"].payloads()) == published

    with_sites(RING, body, hop_limit=3)


def test_a_message_that_a_bridge_brings_in_does_not_go_back_by_it() -> None:
    async def body(sites: dict[str, Site], devices: dict[str, Device]) -> None:
        published = await publish(sites["b"])
        assert sorted(devices["a"].payloads()) == sorted(devices["b"].payloads()) == published
        assert crossings(sites["a"]) == 0

    with_sites([("a", "b")], body, hop_limit=5, remote_subscriptions=[carries("t/#")])
