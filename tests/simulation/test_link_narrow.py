"""A link that takes less than comes at QoS 0: what waited goes first, and no more than that."""

import asyncio
from typing import Any

import pytest

from holdfast.broker.bridge.link import State
from tests.simulation.remote import REMOTE_HOST, REMOTE_PORT, Bridged, Remote, Visit, with_remote

sleep = asyncio.sleep
RATE_BYTES = 200_000
"""What the link takes in a second; twice as much comes."""
BULK = b"x" * 20_000
SECONDS = 40


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
