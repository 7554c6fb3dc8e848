"""What is told of a bridge's messages that are on their way."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from holdfast.broker.admin.http.operation import Asked, ProblemError
from holdfast.broker.admin.v1.bridges import BridgesView
from holdfast.broker.observe.bridges import BridgesSeen, BridgeStanding
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.state.broker import look_at
from tests.simulation.remote import Bridged, Remote, with_remote
from tests.simulation.test_link_changes import MADE


async def standing(bridged: Bridged) -> BridgeStanding:
    broker = look_at(bridged.server, "")
    found = await BridgesSeen(broker, Forecast(broker)).show("b")
    assert found is not None
    return found


@pytest.mark.accepts("S1.12")
def test_a_message_of_qos_2_waits_until_pubcomp() -> None:
    async def body(bridged: Bridged) -> None:
        remote, bridges = bridged.remote, bridged.server.stages.bridges
        await bridged.publish("up/x", b"1", b"2", b"3", qos=2)
        assert len(remote.all("pubrel")) == 3
        seen = await standing(bridged)
        assert (seen.ahead.messages, seen.in_flight, seen.polled) == (3, 3, 0)
        assert seen.ahead.oldest_at_us is not None
        assert seen.drained_in_s is None
        remote.silent_about = {"connect"}
        remote.visit.transport.abort()
        await bridged.publish("up/x", b"4", b"5", qos=2)
        seen = await standing(bridged)
        assert (seen.ahead.messages, seen.in_flight, seen.polled) == (5, 3, 2)
        bridges.run("b", is_running=False, now_us=1)
        assert (await standing(bridged)).ahead.messages == 5
        remote.silent_about = set()
        bridges.run("b", is_running=True, now_us=1)
        await asyncio.sleep(2)
        seen = await standing(bridged)
        assert (seen.ahead.messages, seen.in_flight, seen.polled) == (0, 0, 0)

    remote = Remote()
    remote.silent_about = {"pubrel"}
    with_remote(body, remote)


@pytest.mark.accepts("S1.66")
def test_what_this_connection_has_no_room_for_yet_does_not_wait_for_an_acknowledgement() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        await bridged.publish("up/x", *[b""] * 10, qos=1)
        remote.connack = {"session_present": True}
        remote.properties = {"receive_maximum": 2}
        remote.visit.transport.abort()
        await asyncio.sleep(2)
        assert len(remote.visit.of_kind("publish")) == 2
        contents = look_at(bridged.server, "").bridges.contents("b", whole=True)
        assert contents is not None
        states = Counter(contents.is_awaited(offset) for offset in contents.flights)
        assert states == {True: 2, False: 8}

    remote = Remote()
    remote.silent_about = {"publish"}
    with_remote(body, remote)


def test_a_bridge_that_is_made_while_another_one_of_its_name_is_looked_for_is_shown() -> None:
    async def body(bridged: Bridged) -> None:
        class Slow(BridgesSeen):
            """Somebody is faster."""

            async def show(self, name: str) -> BridgeStanding | None:
                found = await super().show(name)
                if name == MADE.name and found is None:
                    bridged.server.stages.bridges.put(MADE, 0)
                return found

        broker = look_at(bridged.server, "")
        seen = Slow(broker, Forecast(broker))
        view = BridgesView(bridged.server.bridge_commands, seen, cast(Any, None))

        async def show(name: str) -> str:
            path = {"name": name}
            return (await view.show(Asked(cast(Any, None), path, {}, None))).settings.name

        assert await show("made") == "made"
        with pytest.raises(ProblemError, match="nobody"):
            await show("nobody")

    with_remote(body)
