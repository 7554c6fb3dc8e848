"""What is told of a bridge's messages that are on their way."""

import argparse
import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from holdfast.broker.admin.http.operation import Asked, ProblemError
from holdfast.broker.admin.v1.bridges import BridgesView
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.bridge.events import LinkEvent
from holdfast.broker.log_lines import FIELD_CHARACTERS_MAXIMUM
from holdfast.broker.observe.bridges import BridgesSeen, BridgeStanding
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.state.broker import look_at
from holdfast.cli.bridge_command import _print
from holdfast.core.layout import LOG_DIRECTORY
from tests.builders.stored import Message, store
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


def test_an_event_about_a_message_has_its_topic_as_long_as_the_log_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = ["up/a", "up/\x1b[2Jb", "up/" + "c" * 2_000]
    store(tmp_path, [Message(topic, b"secret") for topic in topics])

    async def body(bridged: Bridged) -> None:
        for offset in (0, 1, 2, 99):
            event = LinkEvent(1, "message refused", f"offset {offset}", offset)
            bridged.link.events.append(event)
        broker = look_at(bridged.server, "")
        seen = BridgesSeen(broker, Forecast(broker))
        readers = LogReaders(str(tmp_path / LOG_DIRECTORY), lambda: 100)
        view = BridgesView(bridged.server.bridge_commands, seen, readers)
        shown = await view.show(Asked(cast(Any, None), {"name": "b"}, {}, None))
        told = [(event.kind, event.offset, event.topic_name) for event in shown.events]
        cut_off = topics[2][:FIELD_CHARACTERS_MAXIMUM] + "..."
        assert told == [
            ("connected", None, None),
            ("message refused", 0, topics[0]),
            ("message refused", 1, topics[1]),
            ("message refused", 2, cut_off),
            ("message refused", 99, None),
        ]
        assert b"secret" not in msgspec.json.encode(shown)
        _print(msgspec.to_builtins(shown), argparse.Namespace(json=False))

    with_remote(body)
    printed = capsys.readouterr().out
    assert "message refused up/\\x1b[2Jb: offset 1\n" in printed
    assert "message refused offset 99\n" in printed


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
