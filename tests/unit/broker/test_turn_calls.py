"""The boundary's price: a turn makes as many calls for ten thousand messages as for ten."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.ingress.connection import Connection
from holdfast.broker.turn import Turn
from holdfast.core.config import Config
from holdfast.kernel import Log, decode_packets, encode_packet

NOW_US = 1_800_000_000_000_000
FEW, MANY = 10, 10_000
ANSWERS = {1: "puback", 2: "pubrec"}


class InlineCommits:
    """Commits when the test says so."""

    def __init__(self, log: Log, ended: Callable[[], None]) -> None:
        self._log = log
        self._ended = ended

    def commit(self) -> None:
        self._log.commit()
        self._ended()

    def wake(self) -> None:
        pass

    def collect(self) -> None:
        pass

    def stop(self) -> None:
        self._log.commit()


class StillWorld:
    """A world in which no time passes."""

    commits_made: InlineCommits

    def now_us(self) -> int:
        return NOW_US

    def entropy(self, count: int) -> bytes:
        return bytes(count)

    def seed(self) -> int:
        return 7

    def open_files(self) -> int:
        return 1_000_000

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        return Log.open(
            str(config.data_dir),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability="memory",
            seed=7,
            now_us=NOW_US,
        )

    def view_path(self, config: Config) -> str:
        return ":memory:"

    def commits(self, log: Log, ended: Callable[[], None]) -> InlineCommits:
        self.commits_made = InlineCommits(log, ended)
        return self.commits_made


class Wire(asyncio.Transport):
    """A socket without a network: what the broker writes stays here."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.written = bytearray()
        self._connection = connection
        connection.connection_made(self)

    def send(self, data: bytes) -> None:
        buffer = self._connection.get_buffer(-1)
        for start in range(0, len(data), len(buffer)):
            piece = data[start : start + len(buffer)]
            buffer[: len(piece)] = piece
            self._connection.buffer_updated(len(piece))

    def packets(self) -> Counter[str]:
        found, used = decode_packets(bytes(self.written), protocol_version=4, role="client")
        del self.written[:used]
        return Counter(packet.kind for packet in found)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


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
        sys.setprofile(note)
        try:
            run(*arguments)
        finally:
            sys.setprofile(None)

    return profiled


async def turns_of(
    messages: int, qos: int, directory: Path, turns: list[Counter[str]]
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
    wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": "t", "qos": qos}]}
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


async def settled(world: StillWorld) -> None:
    """Lets turns and commits follow one another until nothing more happens."""
    for _ in range(10):
        await asyncio.sleep(0)
        world.commits_made.commit()
    await asyncio.sleep(0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_turn_makes_as_many_calls_for_ten_thousand_messages_as_for_ten(
    qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Counter[str]] = []
    monkeypatch.setattr(Turn, "stages_in_order", counted(turns, Turn.stages_in_order))
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few = asyncio.run(turns_of(FEW, qos, tmp_path / "few", turns))
    many = asyncio.run(turns_of(MANY, qos, tmp_path / "many", turns))
    assert [sum(calls.values()) for calls in few] == [sum(calls.values()) for calls in many]
    assert few == many
