"""The broker's world in virtual time: a clock that may be wrong, a disk in memory, a committer
without a thread.

Owns: what `holdfast.broker.world.World` asks for, from one seed; and the machine that the broker
runs on, with the way it ends and begins again.
Never: knows what the broker is; whoever starts one hands in how.

Invariants:
1. The disk outlives the machine's lives; nothing else does.
2. `now_us` never goes back within one life, as on a real host, where only a restart shows that
   somebody has set the clock.
"""

from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol, TypeVar

from holdfast.core.config import Config
from holdfast.kernel import Log, SimulatedDisk
from holdfast.testing.clock import SimulatedClock
from holdfast.testing.loop import VirtualLoop
from holdfast.testing.machine import Machine

T = TypeVar("T")

STAGED = "staged-"
"""How the names of files begin that are not the log's."""
DISK_BYTES = 1 << 30
"""Much more than any run writes."""


class SimulatedWorld:
    """What one life of a broker sees."""

    def __init__(self, loop: VirtualLoop, disk: SimulatedDisk, clock: SimulatedClock) -> None:
        self._loop = loop
        self._disk = disk
        self._began_us = clock.now_us()
        self._began_at_us = loop.time_us
        self._drift_ppm = loop.hardships.clock_drift_ppm

    def now_us(self) -> int:
        """The wall clock when this life began, and what has passed since."""
        passed_us = self._loop.time_us - self._began_at_us
        return self._began_us + passed_us + passed_us * self._drift_ppm // 1_000_000

    def ticks_ns(self) -> int:
        """What has passed in this life; a step of the loop takes no time."""
        return (self._loop.time_us - self._began_at_us) * 1_000

    def entropy(self, count: int) -> bytes:
        """From the seed."""
        return self._loop.random.randbytes(count)

    def seed(self) -> int:
        """From the seed."""
        return self._loop.random.getrandbits(63)

    def open_files(self) -> int:
        """More than any run opens."""
        return 1 << 30

    def handles(self, _listening: Any, _count: int) -> list[Any]:
        """None: the network takes connections as they come."""
        return []

    def sockets(self) -> None:
        """None: all connections are the simulated network's."""

    def resolver(self) -> None:
        """None: the simulated network knows all names."""

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        """Opens and recovers the log on the simulated disk."""
        return Log.open_simulated(
            self._disk,
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability=config.durability,
            seed=self.seed(),
            now_us=self.now_us(),
        )

    def view_path(self, config: Config) -> str:
        """The view is derived; each life builds it again."""
        del config
        return ":memory:"

    def commits(self, log: Log, ended: Callable[[], None]) -> "SimulatedCommits":
        """Commits that take virtual time."""
        return SimulatedCommits(self._loop, log, ended)

    def workers(self, count: int) -> "SimulatedWorkers":
        """Workers who take virtual time, however many."""
        del count
        return SimulatedWorkers(self._loop)

    def staged(self, config: Config) -> "SimulatedFiles":
        """Files on the disk that the log is on."""
        del config
        return SimulatedFiles(self._disk)


class SimulatedFiles:
    """Files on the simulated disk, beside those of the log."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def sizes(self) -> dict[str, int]:
        """Those that were written here."""
        names = [name for name in self._disk.files() if name.startswith(STAGED)]
        return {name.removeprefix(STAGED): len(self._disk.read(name)) for name in names}

    def write(self, name: str, data: bytes) -> None:
        """Durable on return."""
        self.remove(name)
        self._disk.write(STAGED + name, data)

    def read(self, name: str, most: int | None = None) -> bytes:
        """What the disk shows."""
        return self._disk.read(STAGED + name)[:most]

    def remove(self, name: str) -> None:
        """A crash may bring it back."""
        if STAGED + name in self._disk.files():
            self._disk.remove(STAGED + name)


class SimulatedWorkers:
    """Work that is done on the loop, after the time that a thread takes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._stopped = False

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Does `work` later."""
        mean_s = self._loop.hardships.executor_latency_s
        delay_s = self._loop.random.expovariate(1 / mean_s) if mean_s else 0
        self._loop.call_later(delay_s, self._end, work, done)

    def stop(self) -> None:
        """What is not done is left."""
        self._stopped = True

    def _end(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if not self._stopped:
            done(work())


class SimulatedCommits:
    """Commits on the loop, after the time that the disk takes."""

    def __init__(self, loop: VirtualLoop, log: Log, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._log = log
        self._ended = ended
        self._is_committing = False
        self._failure: Exception | None = None

    def wake(self) -> None:
        """Begins a commit, unless one is on its way."""
        if self._is_committing:
            return
        self._is_committing = True
        mean_s = self._loop.hardships.disk_latency_s
        self._loop.call_later(self._loop.random.expovariate(1 / mean_s) if mean_s else 0, self._end)

    def collect(self) -> None:
        """Raises what the last commit failed with."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Commits what is left."""
        self._log.commit()

    def _end(self) -> None:
        self._is_committing = False
        try:
            while self._log.commit():
                pass
        except Exception as error:  # noqa: BLE001 - handed on by `collect`.
            self._failure = error
        self._ended()


class Life(Protocol):
    """One life of whatever runs on the machine."""

    async def start(self) -> None:
        """Begins to serve."""

    async def wait_ended(self) -> None:
        """Returns, or raises, when it ends by itself."""

    async def stop(self) -> None:
        """Ends it cleanly."""


class BrokerMachine:
    """A machine with a disk, on which a broker is started again whenever it ends."""

    def __init__(self, loop: VirtualLoop, begin: Callable[[SimulatedWorld], Life]) -> None:
        """`begin` makes a broker in a world; it is called once for each life."""
        self.disk = SimulatedDisk(
            loop.random.getrandbits(63),
            capacity_bytes=loop.hardships.small_disk_bytes or DISK_BYTES,
        )
        self.lives = 0
        self.failed_syncs = 0
        self.power_cuts = 0
        self.life: Life | None = None
        self.ended: Callable[[], None] = lambda: None
        """Called whenever a life has ended, however."""
        self._loop = loop
        self._clock = SimulatedClock(loop)
        self._begin = begin
        self._machine = Machine("broker")

    def start(self) -> None:
        """Begins a life, and another whenever one fails."""
        self._machine = machine = Machine("broker")
        self._loop.create_task(self._live(machine), context=machine.context())

    def run(self, then: Callable[[], None]) -> None:
        """Does this on the machine: it ends with its power."""
        self._machine.context().run(then)

    def set_clock(self, seconds: float) -> None:
        """Somebody sets its clock, forward or back; the next life sees it."""
        self._clock.step(seconds)

    def cut_power(self) -> None:
        """Everything stops where it is; of what was not synced, any part may be left."""
        self.power_cuts += 1
        self.kill()
        self.disk.crash()

    def kill(self) -> None:
        """The process ends where it is; what it has written stays written."""
        self.life = None
        self._loop.power_off(self._machine)
        self.ended()

    def recover(self) -> None:
        """Begins a life if the power is off."""
        if not self._machine.has_power:
            self.start()

    async def stop(self) -> None:
        """The broker ends cleanly."""
        life, self.life = self.life, None
        assert life is not None
        task = self._loop.create_task(life.stop(), context=self._machine.context())
        await task
        self._loop.power_off(self._machine)

    async def _live(self, machine: Machine) -> None:
        self.lives += 1
        self._loop.note(f"life {self.lives} begins")
        try:
            life = self._begin(SimulatedWorld(self._loop, self.disk, self._clock))
            await life.start()
            self.life = life
            await life.wait_ended()
        except Exception as error:  # noqa: BLE001 - whoever supervises processes starts a new one.
            self._loop.note(f"life {self.lives} ended with {type(error).__name__}: {error}")
            self._loop.call_later(1.0, self._restart, machine, context=Context())

    def _restart(self, machine: Machine) -> None:
        if machine is self._machine and machine.has_power:
            self.kill()
            self.start()
