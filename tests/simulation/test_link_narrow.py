"""A link that takes less than comes at QoS 0: what waited goes first, and no more than that; and
one that takes long for a message, which is no stall."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.bridge.link import State
from holdfast.core.units import MIB
from tests.simulation.remote import REMOTE_HOST, REMOTE_PORT, Bridged, Remote, Visit, with_remote
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
RATE_BYTES = 200_000
"""What the link takes in a second; twice as much comes."""
BULK = b"x" * 20_000
SECONDS = 40
STALL_S = 5
LARGE = b"x" * (2 * STALL_S * RATE_BYTES)
"""Takes twice as long as a stall."""
LONGEST_WAIT_S = 10
ROOMY = replace(
    CONFIG,
    bridges_stall_timeout_s=STALL_S,
    maximum_packet_size_bytes=4 * MIB,
    segment_bytes=16 * MIB,
    checkpoint_bytes=64 * MIB,
    reserve_bytes=64 * MIB,
)


class Narrow(Remote):
    """Its line takes so many bytes a second."""

    async def listen(self) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Narrowed(self), REMOTE_HOST, REMOTE_PORT)


class Narrowed(Visit):
    """One connection with it."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.slow_down(RATE_BYTES)


@pytest.mark.accepts("S1.58", "S1.62")
def test_qos_0_that_comes_faster_than_the_link_takes_it_keeps_no_alarm_back() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        device = await bridged.connect("device", clean=True)
        alarms = 0

        async def live(seconds: int) -> None:
            nonlocal alarms
            for _ in range(seconds):
                for _ in range(2 * RATE_BYTES // len(BULK)):
                    device.publish("up/bulk", b"new" + BULK, qos=0)
                alarms += 1
                device.publish("up/alarm", b"%d" % alarms, identifier=alarms)
                await sleep(1)

        remote.connack = {"reason_code": 0x88}
        remote.visit.transport.abort()
        await sleep(0.1)
        for number in range(50):
            device.publish("up/bulk", b"%d" % number + BULK, qos=0)
        await live(2)
        remote.connack = {}
        await live(SECONDS)
        assert bridged.link.state is State.CONNECTED
        got = remote.all("publish")
        waited = [fields["payload"].removesuffix(BULK) for fields in got[:50]]
        assert waited == [b"%d" % number for number in range(50)], "what waited goes first"
        arrived = {fields["payload"] for fields in got if fields["qos"]}
        assert len(arrived) >= SECONDS // 2

    with_remote(body, Narrow(), local_subscriptions=[{"filters": ["up/#"]}])


@pytest.mark.parametrize("goes", ["as it comes", "after a wait", "once again"])
def test_a_message_that_takes_longer_than_a_stall_gets_through(goes: str) -> None:
    async def body(bridged: Bridged) -> None:
        remote, link = bridged.remote, bridged.link
        if goes == "after a wait":
            remote.connack = {"reason_code": 0x88}
            remote.visit.transport.abort()
            await sleep(0.1)
        for number in range(2):
            await bridged.publish("up/large", b"%d" % number + LARGE, qos=1)
        if goes == "once again":
            assert link.queue.in_flight() > 0
            remote.visit.transport.abort()
        remote.connack = {"session_present": True}
        await sleep(2 * len(LARGE) // RATE_BYTES + LONGEST_WAIT_S)
        assert (link.counts.stalls, link.counts.connections) == (0, 1 + (goes != "as it comes"))
        assert [fields["payload"][:1] for fields in remote.all("publish")] == [b"0", b"1"]
        assert link.queue.in_flight() == 0

    table = {"local_subscriptions": [{"filters": ["up/#"]}], "keep_alive_s": 3}
    with_remote(body, Narrow(), ROOMY, **table)


def test_a_remote_that_takes_bytes_and_answers_none_of_them_is_a_stall() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.silent_about = {"publish"}
        device = await bridged.connect("device", clean=True)
        for number in range(1, 3 * STALL_S):
            device.publish("up/bulk", BULK, qos=0)
            device.publish("up/alarm", b"", identifier=number)
            await sleep(1)
        assert bridged.link.counts.stalls > 0

    table = {"local_subscriptions": [{"filters": ["up/#"]}], "keep_alive_s": 2}
    with_remote(body, Narrow(), ROOMY, **table)
