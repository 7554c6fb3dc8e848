"""The outside world: the only reader of the real clock, entropy, environment and host limits.

Everything that makes a run differ from its replay comes through here, at the edge of the program,
and is handed inward as an argument; a simulation hands in its own.
"""

import ctypes
import gc
import os
import platform
import resource
import shutil
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

GARBAGE_OBJECTS = 20_000
"""New objects after which Python looks for circles among them: some megabytes at most."""
INTERPRETER_KEPT_S = 0.0002
"""How long a thread keeps the interpreter while another waits for it. The event loop gives it away
in each system call, and waits that long to have it back while a worker computes in Python: with
Python's own 5 ms a PUBACK took 18 ms beside such a worker, with this 3 ms."""

NICENESS_BESIDE = 10
"""By how much threads that read for somebody are nicer: they get a ninth of what the event
loop gets of a core that both want. On two cores, with a reader at full speed and an administrator
in a loop, they took 44 % of one, and the committer waited three times as long for a core as it
needed one."""
SLICE_BESIDE_NS = 100_000_000
"""For how long they want a core at a time, the most that Linux allows: who is woken and wants it
for less need not wait until theirs is over (`docs/adr/0038-who-reads-gives-way.md`)."""
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of that system call, for which the C library has no name before its version 2.41."""

GONE_WITHIN_S = 10.0
"""What threads that have nothing left to do are given to end where no core is to spare."""
GONE_EVERY_S = 0.001


def now_us() -> int:
    """Microseconds since the epoch, UTC. May step when the host's clock is set."""
    return time.time_ns() // 1_000


def monotonic_s() -> float:
    """Seconds that never run backwards, for measuring how long something took."""
    return time.monotonic()


ticks_ns: Final = time.perf_counter_ns
"""Nanoseconds that never run backwards, for measuring what is short. Not a function of ours: a turn
asks for it a dozen times."""


def entropy(count: int) -> bytes:
    """`count` bytes that nobody can predict."""
    return os.urandom(count)


def seed() -> int:
    """A seed for hash tables and the like, of 63 bits."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def duplicate(descriptor: int) -> int:
    """Another descriptor of the same open file."""
    return os.dup(descriptor)


def environment() -> Mapping[str, str]:
    """The environment as it is now."""
    return dict(os.environ)


def disk_bytes(directory: Path) -> int:
    """The size of the disk on which `directory` lies or would lie."""
    return shutil.disk_usage(_nearest_existing(directory)).total


def disk_free_bytes(directory: Path) -> int:
    """What this user may still write to the disk on which `directory` lies."""
    return shutil.disk_usage(_nearest_existing(directory)).free


def cpu_s() -> float:
    """The processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def open_files_limit() -> int:
    """How many files this process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def raise_open_files_limit() -> int:
    """Let this process open as many files as it is allowed to; returns that number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_limit()


def end_process_within(seconds: float, exit_code: int, last_words: str) -> threading.Timer:
    """Ends this process after so many seconds whatever it waits for, unless the timer is
    cancelled: a thread that waits for a disk cannot be ended in any other way."""

    def end() -> None:
        sys.stderr.write(last_words + "\n")
        sys.stderr.flush()
        os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def pause_garbage_collector() -> None:
    """Python's collector of circular garbage rests until `calm_garbage_collector`. What a start
    makes is no garbage, and looking through it again and again took a tenth of the start."""
    gc.disable()


def calm_garbage_collector() -> None:
    """Lets Python's collector of circular garbage look at less, and less often, from now on.

    What was built so far stays for as long as the process. What a connection leaves behind is freed
    when it is left, for it has no circles; looking for some cost a sixth of each CONNECT.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)
    gc.enable()


def share_interpreter() -> None:
    """Lets a thread that waits for the interpreter have it soon, from now on."""
    sys.setswitchinterval(INTERPRETER_KEPT_S)


def stand_back() -> None:
    """Where cores are short, the calling thread leaves them to the event loop and to commits from
    now on, however nice these are, and need not be waited for: on Linux a thread has a priority
    and a slice of its own."""
    os.nice(NICENESS_BESIDE)
    _ask_for_slice()


def _ask_for_slice() -> None:
    """Nothing changes where the system does not know of slices (Linux before 6.12, other systems),
    forbids it, or has been told to schedule this process in a way of its own."""
    number = SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    # `struct sched_attr` as it was first: size, policy, flags, nice, priority, and three times.
    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, niceness, 0, SLICE_BESIDE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, wanted, 0)


def thread_number() -> int:
    """The system's number of the calling thread."""
    return threading.get_native_id()


def wait_threads_gone(numbers: Iterable[int]) -> None:
    """Waits until this process has no threads with these numbers, at most `GONE_WITHIN_S` for all.
    Where the system does not list threads as Linux does, it returns at once."""
    until_s = monotonic_s() + GONE_WITHIN_S
    for number in numbers:
        while Path(f"/proc/self/task/{number}").exists() and monotonic_s() < until_s:
            time.sleep(GONE_EVERY_S)


def process_id() -> int:
    """This process's number, to name the holder of a data directory."""
    return os.getpid()


def machine_name() -> str:
    """This machine's name, without its domain."""
    return platform.node().partition(".")[0]


def resident_bytes() -> int:
    """The memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _nearest_existing(directory: Path) -> Path:
    present = directory.absolute()
    while not present.exists():
        present = present.parent
    return present
