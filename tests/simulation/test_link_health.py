"""Whether a link is alive: what counts as a sign of life from the remote, and when it gets ours."""

import asyncio

import msgspec

from holdfast.broker.bridge.link import State
from tests.simulation.remote import Bridged, Remote, with_remote

sleep = asyncio.sleep
CARRIED_TOO_OFTEN = {"user_property": [("hmq-bridge-hop-count", "5")]}


def test_messages_that_are_dropped_here_are_no_progress_of_what_waits_there() -> None:
    async def body(bridged: Bridged) -> None:
        link = bridged.link
        await bridged.publish("up/x", b"never acknowledged", qos=1)
        for _ in range(9):
            if link.state is State.CONNECTED:
                visit = bridged.remote.visit
                visit.publish("down/x", b"dropped", properties=CARRIED_TOO_OFTEN)
            await sleep(20)
        assert link.inbound()[1] > 1
        assert link.counts.stalls > 0

    remote = Remote()
    remote.silent_about = {"publish"}
    with_remote(body, remote)


def test_a_keep_alive_of_a_second_ends_no_connection() -> None:
    async def body(bridged: Bridged) -> None:
        bridges, bridge = bridged.server.stages.bridges, bridged.link.bridge
        for tenth in range(10):
            bridges.put(msgspec.structs.replace(bridge, name=f"c{tenth}"), 1)
            await sleep(0.1)
        await sleep(60)
        assert {link.counts.connections for link in bridges.links()} == {1}
        pings = len(bridged.remote.all("pingreq"))
        assert pings / len(bridged.remote.visits) <= 62

    with_remote(body, keep_alive_s=1)
