"""The world as the broker meets it: a clock, entropy, a log on a disk, and whoever commits it.

Owns: the two interfaces that a simulation replaces, and the real ones. Sockets come from the event
loop that is running, which a simulation replaces as a whole.

Invariants:
1. `now_us` never goes back, however the host's clock is set.
2. `ended` is called on the loop's own thread, after a commit has ended.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from socket import SOCK_STREAM, getaddrinfo, socket
from typing import Any, Protocol, TypeVar

from holdfast import system
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY, STAGED_DIRECTORY, VIEW_FILE
from holdfast.kernel import Committer, Log, Sockets

T = TypeVar("T")

Resolver = Callable[[str], list[str]]
"""Finds the addresses of a host by its name, and blocks. Raises `OSError`, or `UnicodeError` for
what can be no name."""

DRAW_PERIOD_US = 1_000_000
"""How often the steady clock looks at the host's."""
DRAW_SHARE = 100
"""It corrects itself by at most this part of the time that has passed, so that an interval is
never off by more than a hundredth."""


class Commits(Protocol):
    """Whoever brings appended records to the disk."""

    def wake(self) -> None:
        """There may be something to commit; returns at once."""

    def collect(self) -> None:
        """Takes over commits that have ended: the log's durable position moves.

        Raises `PoisonedError` after a sync that failed: nothing more may be acknowledged.
        """

    def stop(self) -> None:
        """Commits what is left, and returns when it is durable."""


class Workers(Protocol):
    """Whoever does what would hold up the loop."""

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Does `work` elsewhere, then calls `done` with what it returned on the loop's own thread.
        `work` must not raise."""

    def stop(self) -> None:
        """Waits for what is being done, and calls nobody any more."""


class Files(Protocol):
    """A folder of files that are written once and read later, for workers: all of these block."""

    def sizes(self) -> dict[str, int]:
        """Every file with its bytes."""

    def write(self, name: str, data: bytes) -> None:
        """A file with these bytes, in place of one that was there; durable on return, as far as
        `durability` promises. Raises `OSError`."""

    def read(self, name: str, most: int | None = None) -> bytes:
        """What a file has, or its first bytes. Raises `OSError`."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""


class World(Protocol):
    """Everything that makes one run differ from another."""

    def now_us(self) -> int:
        """Microseconds since the epoch; never less than it was."""

    def ticks_ns(self) -> int:
        """Nanoseconds since some moment, to measure how long something took; cheap to ask for."""

    def entropy(self, count: int) -> bytes:
        """Bytes that a client cannot predict."""

    def seed(self) -> int:
        """A seed for hash tables."""

    def open_files(self) -> int:
        """How many files, sockets among them, may be open at once."""

    def handles(self, listening: socket, count: int) -> list[socket]:
        """So many more handles of a socket that listens; none where the event loop takes all
        connections that there are."""

    def sockets(self) -> Sockets | None:
        """The kernel's table of sockets; `None` where the event loop carries all connections."""

    def resolver(self) -> Resolver | None:
        """Whoever knows the addresses of names; `None` where the event loop is asked."""

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        """Opens and recovers the log; see `Log.open`."""

    def view_path(self, config: Config) -> str:
        """Where SQLite keeps the view; may be `:memory:`."""

    def commits(self, log: Log, ended: Callable[[], None]) -> Commits:
        """Begins to commit; `ended` is called whenever there is something to `collect`, unless the
        table of sockets tells that."""

    def workers(self, count: int) -> Workers:
        """So many workers; each does one thing at a time."""

    def staged(self, config: Config) -> Files:
        """Where parts of batches lie until they are in the log."""


class SteadyClock:
    """A wall clock that neither goes back nor jumps.

    Between two readings as much time passes as really did. Where that leaves it apart from the
    host's clock, because somebody has set that one, it is drawn towards it by a hundredth of the
    time that passes: Keep Alive, expiry and Wills keep their length, and in the end the times
    agree.
    """

    def __init__(self, wall_us: Callable[[], int], ticks_ns: Callable[[], int]) -> None:
        self._wall_us = wall_us
        self._ticks_ns = ticks_ns
        self._base_us = wall_us()
        self._base_ns = ticks_ns()
        self._last_us = self._base_us

    def now_us(self) -> int:
        """Microseconds since the epoch; never less than the last time."""
        elapsed_us = (self._ticks_ns() - self._base_ns) // 1_000
        now_us = self._base_us + elapsed_us
        if elapsed_us >= DRAW_PERIOD_US:
            most_us = elapsed_us // DRAW_SHARE
            error_us = self._wall_us() - now_us
            self._base_us = now_us + max(-most_us, min(most_us, error_us))
            self._base_ns += elapsed_us * 1_000
        if now_us > self._last_us:
            self._last_us = now_us
        return self._last_us


class RealWorld:
    """This host."""

    def __init__(self) -> None:
        self.now_us = SteadyClock(system.now_us, system.ticks_ns).now_us
        self.ticks_ns = system.ticks_ns
        self._sockets = Sockets()

    def entropy(self, count: int) -> bytes:
        """From the operating system."""
        return system.entropy(count)

    def seed(self) -> int:
        """From the operating system."""
        return system.seed()

    def open_files(self) -> int:
        """As the operating system says."""
        return system.open_files_limit()

    def handles(self, listening: socket, count: int) -> list[socket]:
        """Descriptors of the same socket."""
        return [socket(fileno=system.duplicate(listening.fileno())) for _ in range(count)]

    def sockets(self) -> Sockets:
        """Real ones."""
        return self._sockets

    def resolver(self) -> Resolver:
        """The system's."""
        return _addresses

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        """Opens the log in the data directory, which the caller has locked."""
        directory = config.data_dir / LOG_DIRECTORY
        directory.mkdir(exist_ok=True)
        return Log.open(
            str(directory),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability=config.durability,
            seed=self.seed(),
            now_us=self.now_us(),
        )

    def view_path(self, config: Config) -> str:
        """Beside the log."""
        return str(config.data_dir / VIEW_FILE)

    def commits(self, log: Log, ended: Callable[[], None]) -> Commits:
        """The kernel's thread; the table of sockets tells of its commits."""
        del ended
        return CommitterThread(log, self._sockets)

    def workers(self, count: int) -> Workers:
        """Threads, which begin when there is something to do."""
        return WorkerThreads(count)

    def staged(self, config: Config) -> Files:
        """A folder beside the log."""
        return FolderFiles(config.data_dir / STAGED_DIRECTORY, config.durability == "fsync")


def _addresses(host: str) -> list[str]:
    found = getaddrinfo(host, None, type=SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class FolderFiles:
    """Files in a folder of the host, which is made with the first of them."""

    def __init__(self, folder: Path, is_synced: bool) -> None:
        self._folder = folder
        self._is_synced = is_synced

    def sizes(self) -> dict[str, int]:
        """What is in the folder."""
        if not self._folder.exists():
            return {}
        return {path.name: path.stat().st_size for path in self._folder.iterdir()}

    def write(self, name: str, data: bytes) -> None:
        """Written and synced, and so is the folder."""
        self._folder.mkdir(exist_ok=True)
        with (self._folder / name).open("wb") as file:
            file.write(data)
            file.flush()
            if self._is_synced:
                os.fsync(file.fileno())
        if self._is_synced:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def read(self, name: str, most: int | None = None) -> bytes:
        """Through the system's cache, where it mostly is."""
        with (self._folder / name).open("rb") as file:
            return file.read(-1 if most is None else most)

    def remove(self, name: str) -> None:
        """Not synced: what a crash brings back is removed when it is old."""
        (self._folder / name).unlink(missing_ok=True)


class WorkerThreads:
    """Threads beside the event loop."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self._stopped = False

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Does `work` on a thread."""
        loop = asyncio.get_running_loop()

        def ended(future: Future[T]) -> None:
            if not self._stopped:
                loop.call_soon_threadsafe(done, future.result())

        self._pool.submit(work).add_done_callback(ended)

    def stop(self) -> None:
        """Ends the threads."""
        self._stopped = True
        self._pool.shutdown(cancel_futures=True)


class CommitterThread:
    """The kernel's committer, whose ends of commits the sockets tell."""

    def __init__(self, log: Log, sockets: Sockets) -> None:
        self._committer = Committer(log)
        self.wake = self._committer.wake
        self.collect = self._committer.collect
        sockets.watch(self._committer)

    def stop(self) -> None:
        """Commits what is left and ends the thread."""
        self._committer.stop()
