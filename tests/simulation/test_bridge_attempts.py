"""Attempts go on for ever, whatever ends one."""

import asyncio
from threading import Event
from typing import Any, cast

import pytest

from holdfast.broker.bridge.link import State
from holdfast.broker.world import Resolver
from holdfast.core.limits import CONNECT_TIMEOUT_S
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import SimulatedWorld
from tests.simulation.pair import connect
from tests.simulation.sites import Site, carries

HOST, PORT = "10.9.9.9", 80
MINUTE_S = 60


class Closer(asyncio.Protocol):
    """Takes a connection and ends it at once."""

    def connection_made(self, transport: Any) -> None:
        transport.close()


class Mute(asyncio.Protocol):
    """Takes a connection and says nothing."""


class Stranger(asyncio.Protocol):
    """Does not speak MQTT."""

    def connection_made(self, transport: Any) -> None:
        transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class NobodyAnswers:
    """A world in which no name is resolved, and no look-up ends."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def resolver(self) -> Resolver:
        def never(_host: str) -> list[str]:
            Event().wait()
            return []

        return never


class Nameless(Site):
    """A site in it."""

    def _begin(self, world: SimulatedWorld) -> Any:
        return super()._begin(cast(SimulatedWorld, NobodyAnswers(world)))


async def begun(loop: VirtualLoop, scheme: str, **settings: Any) -> Site:
    site = Site(loop, "a", **settings)
    site.join("b", address=f"{scheme}://{HOST}:{PORT}", local_subscriptions=[carries("t/#")])
    await site.start()
    await asyncio.sleep(0.5)
    return site


@pytest.mark.accepts("S1.51", "S1.53")
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize("remote", [None, Closer, Mute, Stranger])
def test_a_remote_that_cannot_be_spoken_with_is_tried_again_for_ever(
    scheme: str, remote: type[asyncio.Protocol] | None
) -> None:
    async def main(loop: VirtualLoop) -> None:
        if remote is not None:
            await loop.create_server(remote, HOST, PORT)
        site = await begun(loop, scheme)
        await asyncio.sleep(10 * MINUTE_S)
        before = site.link("b").counts.attempts
        assert before > 5
        await asyncio.sleep(10 * MINUTE_S)
        assert site.link("b").counts.attempts > before
        assert site.link("b").last_error or site.link("b").state is State.CONNECTING

    simulate(main, seed=1, repeat="this test", hardships=Hardships())


def test_a_bridge_connects_where_clients_have_taken_every_place() -> None:
    async def main(loop: VirtualLoop) -> None:
        remote = Site(loop, "b")
        site = Site(loop, "a", connections_maximum=1)
        wire = site.join("b", local_subscriptions=[carries("t/#")])
        await remote.start()
        await site.start()
        wire.close()
        await asyncio.sleep(0.5)
        await connect(site, "client")
        await wire.open()
        await asyncio.sleep(10 * MINUTE_S)
        assert site.link("b").state is State.CONNECTED

    simulate(main, seed=1, repeat="this test", hardships=Hardships())


def test_a_name_that_nobody_resolves_is_given_up_and_keeps_no_other_bridge_waiting() -> None:
    async def main(loop: VirtualLoop) -> None:
        await loop.create_server(Mute, HOST, PORT)
        site = Nameless(loop, "a")
        site.join("b", address="mqtt://remote.example:1883", local_subscriptions=[carries("t/#")])
        site.join("c", address=f"mqtt://{HOST}:{PORT}", local_subscriptions=[carries("t/#")])
        await site.start()
        await asyncio.sleep(1)
        assert site.link("c").handle
        await asyncio.sleep(CONNECT_TIMEOUT_S)
        told = "remote.example: whoever resolves names did not answer in time"
        assert site.link("b").last_error == told
        await asyncio.sleep(MINUTE_S)
        assert site.link("b").counts.attempts > 2
        await site.machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=Hardships())
