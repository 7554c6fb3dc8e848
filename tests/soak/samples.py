"""What the broker's process holds, again and again, and whether it stays flat.

Owns: the samples and the verdict about each quantity. Never: asks the broker.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MIB = 1024 * 1024

WARM_UP = 0.3
"""The part of a run that is not judged, at least: caches fill, the log grows up to its retention
..."""
WARM_UP_ROUNDS = 4.0
"""... and until each of the fleet has come so often: what is carried for those who are away grows
up to what they leave until they have got all of it, which takes some of them a few visits. How long
that is depends on the machine."""
REMEMBERED = "holdfast_log_remembered_bytes{"
JUDGED_MINIMUM = 9
"""Samples without which nothing can be said of a run."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at_s: float
    resident_bytes: int
    descriptors: int
    disk_bytes: int
    remembered_bytes: int
    """Of the memory, what is remembered of the log to save work: parts that each have a maximum."""
    rounds: float
    """How often each of the fleet has come."""
    acknowledged: int
    arrived: int
    passers_by: int


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that must not grow."""

    title: str
    unit: str
    of: Callable[[Sample], float]
    share: float
    """By which part of itself it may grow, and ..."""
    more: float
    """... by how much besides: what one moment differs from another."""


QUANTITIES = (
    Quantity(
        "resident memory",
        "MiB",
        lambda sample: (sample.resident_bytes - sample.remembered_bytes) / MIB,
        0.05,
        4.0,
    ),
    Quantity("descriptors", "", lambda sample: sample.descriptors, 0.1, 4.0),
    Quantity("disk", "MiB", lambda sample: sample.disk_bytes / MIB, 0.1, 4.0),
)


def resident_bytes(process: int) -> int:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {process} has ended")


def remembered_bytes(metrics: str) -> int:
    """What the broker tells that it remembers of the log."""
    told = [line for line in metrics.splitlines() if line.startswith(REMEMBERED)]
    assert told, f"no {REMEMBERED} among the metrics"
    return sum(int(float(line.split()[-1])) for line in told)


def descriptors(process: int) -> int:
    """Open files of a process, sockets among them."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def sockets(process: int) -> int:
    """Open sockets of a process: the log's files come and go, these are its peers'."""
    links = []
    for path in Path(f"/proc/{process}/fd").iterdir():
        # One that was listed may be closed by now.
        with contextlib.suppress(FileNotFoundError):
            links.append(path.readlink())
    return sum(str(link).startswith("socket:") for link in links)


def disk_bytes(directory: Path) -> int:
    """What a directory takes on the disk; files may go while it is looked at."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def judged(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those behind the warm-up; none where they are too few to say anything."""
    warm = [
        sample
        for sample in samples
        if sample.at_s >= WARM_UP * samples[-1].at_s and sample.rounds >= WARM_UP_ROUNDS
    ]
    return warm if len(warm) >= JUDGED_MINIMUM else ()


def growth(samples: Sequence[Sample], quantity: Quantity) -> tuple[float, float, bool]:
    """The quantity after the warm-up and at the end, as medians of those judged, and whether that
    is flat."""
    third = max(len(samples) // 3, 1)
    first = median(quantity.of(sample) for sample in samples[:third])
    last = median(quantity.of(sample) for sample in samples[-third:])
    return first, last, last <= first * (1 + quantity.share) + quantity.more
