"""The boundary's price: a turn makes as many calls for ten thousand messages as for ten."""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.turn import Turn
from holdfast.core.config import Config
from holdfast.core.limits import FILTERS_PER_TURN_MAXIMUM, RETAINED_LOOKED_UP_PER_TURN_MAXIMUM
from holdfast.kernel import encode_packet
from tests.builders.still import StillWorld, Wire, settled

FEW, MANY = 10, 10_000
AT_HAND = 4_000
"""Fewer than a queue that is kept has at hand; of more it reads the rest from the log again."""
CALLS_A_FILTER = 32
"""Seventy-five of them took fifteen microseconds."""
ANSWERS = {1: "puback", 2: "pubrec"}


def counted(turns: list[Counter[str]], run: Callable[..., None]) -> Callable[..., None]:
    """`run`, with the calls that each run makes noted by name."""

    def profiled(*arguments: object) -> None:
        calls: Counter[str] = Counter()

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                calls[frame.f_code.co_qualname] += 1
            elif event == "c_call":
                calls[argument.__qualname__] += 1

        turns.append(calls)
        # What earlier tests left behind must not be finalised in the middle of a turn.
        gc.disable()
        sys.setprofile(note)
        try:
            run(*arguments)
        finally:
            sys.setprofile(None)
            gc.enable()

    return profiled


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """The calls of each turn, as they are made."""
    noted: list[Counter[str]] = []
    monkeypatch.setattr(Turn, "stages_in_order", counted(noted, Turn.stages_in_order))
    return noted


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """For the broker that has few and the one that has many."""
    both = tmp_path / "few", tmp_path / "many"
    for directory in both:
        directory.mkdir()
    return both


async def turns_of(
    messages: int, qos: int, topic_filter: str, directory: Path, turns: list[Counter[str]]
) -> list[Counter[str]]:
    """The calls of the turn that takes `messages` in and of the turn that gives them out."""
    world = StillWorld()
    server = assemble(
        Config(data_dir=directory, receive_maximum=65_535, retention_bytes=2**30), world
    )
    wires = [Wire(server._stages.connections.make()) for _ in range(2)]
    publisher, subscriber = wires
    for number, wire in enumerate(wires):
        connect = {"client_identifier": f"c{number}", "clean_start": True, "keep_alive_s": 0}
        wire.send(encode_packet("connect", connect, protocol_version=4))
    await settled(world)
    wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": topic_filter, "qos": qos}]}
    subscriber.send(encode_packet("subscribe", wanted, protocol_version=4))
    await settled(world)
    assert subscriber.packets() == {"connack": 1, "suback": 1}
    assert publisher.packets() == {"connack": 1}

    turns.clear()
    publish = {"topic_name": "t", "payload": b"x", "qos": qos, "retain": False, "dup": False}
    identifiers = range(1, messages + 1)
    publisher.send(
        b"".join(
            encode_packet("publish", publish | {"packet_identifier": number}, protocol_version=4)
            for number in identifiers
        )
    )
    await asyncio.sleep(0)
    taken_in = list(turns)
    world.commits_made.commit()
    await asyncio.sleep(0)
    given_out = turns[len(taken_in) :]
    assert publisher.packets() == ({ANSWERS[qos]: messages} if qos else {})
    received = subscriber.packets()["publish"]
    assert received == messages if messages == FEW or not qos else received > FEW
    return [*taken_in[:1], *given_out[:1]]


@pytest.mark.parametrize(
    ("topic_filter", "messages"), [("t", MANY), ("$share/group/t", AT_HAND)], ids=["own", "shared"]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_turn_makes_as_many_calls_for_ten_thousand_messages_as_for_ten(
    qos: int,
    topic_filter: str,
    messages: int,
    directories: tuple[Path, Path],
    turns: list[Counter[str]],
) -> None:
    few = asyncio.run(turns_of(FEW, qos, topic_filter, directories[0], turns))
    many = asyncio.run(turns_of(messages, qos, topic_filter, directories[1], turns))
    assert [sum(calls.values()) for calls in few] == [sum(calls.values()) for calls in many]
    assert few == many


async def subscribe_turn(
    filters: int, directory: Path, turns: list[Counter[str]], *, held: int = 0
) -> int:
    """How many calls the longest turn makes that carries out a SUBSCRIBE with so many filters, for
    a client that has `held` already."""
    world = StillWorld()
    server = assemble(Config(data_dir=directory, retention_bytes=2**30), world)
    wire = Wire(server._stages.connections.make())
    connect = {"client_identifier": "c", "clean_start": True, "keep_alive_s": 0}
    wire.send(encode_packet("connect", connect, protocol_version=4))
    await settled(world)
    wanted = [{"topic_filter": f"a/+/{number}/b", "qos": 1} for number in range(held + filters)]
    for subscriptions in filter(None, (wanted[:held], wanted[held:])):
        subscribe = {"packet_identifier": 1, "subscriptions": subscriptions}
        turns.clear()
        wire.send(encode_packet("subscribe", subscribe, protocol_version=4))
        await settled(world)
        while server._stages.subscribe_packets.asked:
            await settled(world)
    assert wire.packets() == {"connack": 1, "suback": 1 + (held > 0)}
    return max(calls.total() for calls in turns)


def test_a_turn_carries_out_so_many_filters_of_a_subscribe(
    directories: tuple[Path, Path], turns: list[Counter[str]]
) -> None:
    few = asyncio.run(subscribe_turn(10, directories[0], turns))
    many = asyncio.run(subscribe_turn(5_010, directories[1], turns))
    assert many - few <= FILTERS_PER_TURN_MAXIMUM * CALLS_A_FILTER


def test_one_more_filter_costs_no_more_beside_thousands(
    directories: tuple[Path, Path], turns: list[Counter[str]]
) -> None:
    few = asyncio.run(subscribe_turn(1, directories[0], turns, held=10))
    many = asyncio.run(subscribe_turn(1, directories[1], turns, held=5_000))
    assert many == few


def test_a_turn_looks_up_so_many_retained_messages_whoever_subscribes(
    tmp_path: Path, turns: list[Counter[str]]
) -> None:
    async def run() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path, retention_bytes=2**30), world)
        wires = [Wire(server._stages.connections.make()) for _ in range(20)]
        for number, wire in enumerate(wires):
            connect = {"client_identifier": f"c{number}", "clean_start": True, "keep_alive_s": 0}
            wire.send(encode_packet("connect", connect, protocol_version=4))
        await settled(world)
        wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": "a/+", "qos": 1}]}
        turns.clear()
        for wire in wires:
            wire.send(encode_packet("subscribe", wanted, protocol_version=4))
        await settled(world)
        assert all(wire.packets()["suback"] == 1 for wire in wires)

    asyncio.run(run())
    look_ups = [calls["Log.retained"] for calls in turns]
    assert max(look_ups) == RETAINED_LOOKED_UP_PER_TURN_MAXIMUM


def test_what_is_ready_leaves_before_queues_that_are_behind_read(
    tmp_path: Path, turns: list[Counter[str]]
) -> None:
    async def run() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path, retention_bytes=2**30), world)
        connect = {"client_identifier": "returns", "clean_start": False, "keep_alive_s": 0}
        wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": "t", "qos": 1}]}
        returns, publisher = (Wire(server._stages.connections.make()) for _ in range(2))
        returns.send(encode_packet("connect", connect, protocol_version=4))
        returns.send(encode_packet("subscribe", wanted, protocol_version=4))
        await settled(world)
        returns.drop()
        connect |= {"client_identifier": "publisher", "clean_start": True}
        publisher.send(encode_packet("connect", connect, protocol_version=4))
        publish = {"topic_name": "t", "payload": b"x", "qos": 1, "retain": False, "dup": False}
        for number in range(1, 11):
            given = publish | {"packet_identifier": number}
            publisher.send(encode_packet("publish", given, protocol_version=4))
        await settled(world)
        turns.clear()
        back = Wire(server._stages.connections.make())
        connect |= {"client_identifier": "returns", "clean_start": False}
        back.send(encode_packet("connect", connect, protocol_version=4))
        await settled(world)
        assert back.packets() == {"connack": 1, "publish": 10}

    asyncio.run(run())
    read = [list(calls) for calls in turns if calls["Log.scan"]]
    assert read
    assert all(names.index("Connections.send") < names.index("Log.scan") for names in read)
