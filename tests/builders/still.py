"""A broker without a clock, a network or a thread: for tests that count what it does."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from holdfast.broker.sockets.connection import Connection
from holdfast.broker.world import Files, FolderFiles
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY, VIEW_FILE
from holdfast.kernel import Log, decode_packets

NOW_US = 1_800_000_000_000_000


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


class InlineWorkers:
    """Does everything here and now."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def stop(self) -> None:
        pass


class StillWorld:
    """A world in which no time passes but what a test lets pass."""

    commits_made: InlineCommits
    durability: Literal["memory", "fsync"] = "memory"
    """What counts as durable: everything, or what a test has committed."""

    def __init__(self) -> None:
        self.time_us = NOW_US

    def now_us(self) -> int:
        return self.time_us

    def ticks_ns(self) -> int:
        return self.time_us * 1_000

    def entropy(self, count: int) -> bytes:
        return bytes(count)

    def seed(self) -> int:
        return 7

    def open_files(self) -> int:
        return 1_000_000

    def sockets(self) -> None:
        """None: nothing comes from outside."""

    def resolver(self) -> None:
        """None: nothing is connected to."""

    def handles(self, _listening: Any, _count: int) -> list[Any]:
        return []

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        return Log.open(
            str(config.data_dir),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability=self.durability,
            seed=7,
            now_us=self.time_us,
        )

    def view_path(self, config: Config) -> str:
        return ":memory:"

    def commits(self, log: Log, ended: Callable[[], None]) -> InlineCommits:
        self.commits_made = InlineCommits(log, ended)
        return self.commits_made

    def workers(self, count: int) -> InlineWorkers:
        return InlineWorkers()

    def staged(self, config: Config) -> Files:
        return FolderFiles(config.data_dir / "staged", is_synced=False)


class FiledWorld(StillWorld):
    """Its files are where a broker has them, so that a thread can read them beside the loop."""

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        (config.data_dir / LOG_DIRECTORY).mkdir(exist_ok=True)
        return super().open_log(replace(config, data_dir=config.data_dir / LOG_DIRECTORY))

    def view_path(self, config: Config) -> str:
        return str(config.data_dir / VIEW_FILE)


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

    def drop(self) -> None:
        """The peer is gone, without a word."""
        self._connection.connection_lost(None)

    def get_write_buffer_size(self) -> int:
        """What is written has gone."""
        return 0

    def stop_reading(self) -> None:
        """The socket takes nothing more."""
        self._connection.pause_writing()

    def go_on_reading(self) -> None:
        """The socket takes bytes again."""
        self._connection.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def settled(world: StillWorld) -> None:
    """Lets turns and commits follow one another until nothing more happens."""
    for _ in range(10):
        await asyncio.sleep(0)
        world.commits_made.commit()
    await asyncio.sleep(0)
