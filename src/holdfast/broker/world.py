"""The world as the broker meets it: a clock, entropy, a log on a disk, and whoever commits it.

Owns: the two interfaces that a simulation replaces, and the real ones. Sockets come from the event
loop that is running, which a simulation replaces as a whole.

Invariants:
1. `now_us` never goes back, however the host's clock is set.
2. `ended` is called on the loop's own thread, after a commit has ended.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from holdfast import system
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY, VIEW_FILE
from holdfast.kernel import Committer, Log


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


class World(Protocol):
    """Everything that makes one run differ from another."""

    def now_us(self) -> int:
        """Microseconds since the epoch; never less than it was."""

    def entropy(self, count: int) -> bytes:
        """Bytes that a client cannot predict."""

    def seed(self) -> int:
        """A seed for hash tables."""

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        """Opens and recovers the log; see `Log.open`."""

    def view_path(self, config: Config) -> str:
        """Where SQLite keeps the view; may be `:memory:`."""

    def commits(self, log: Log, ended: Callable[[], None]) -> Commits:
        """Begins to commit; `ended` is called whenever there is something to `collect`."""


class SteadyClock:
    """The host's clock, without its steps backwards."""

    def __init__(self) -> None:
        self._began_us = system.now_us()
        self._began_s = system.monotonic_s()

    def now_us(self) -> int:
        """The time at the start, and what has passed since."""
        return self._began_us + int((system.monotonic_s() - self._began_s) * 1_000_000)


class RealWorld:
    """This host."""

    def __init__(self) -> None:
        self._clock = SteadyClock()
        self.now_us = self._clock.now_us

    def entropy(self, count: int) -> bytes:
        """From the operating system."""
        return system.entropy(count)

    def seed(self) -> int:
        """From the operating system."""
        return system.seed()

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
        """The kernel's thread, which wakes the loop through a file descriptor."""
        return CommitterThread(log, ended, asyncio.get_running_loop())


class CommitterThread:
    """The kernel's committer, joined to the event loop."""

    def __init__(
        self, log: Log, ended: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._committer = Committer(log)
        self._loop = loop
        self.wake = self._committer.wake
        self.collect = self._committer.collect
        loop.add_reader(self._committer.fileno(), ended)

    def stop(self) -> None:
        """Commits what is left and ends the thread."""
        self._loop.remove_reader(self._committer.fileno())
        self._committer.stop()
