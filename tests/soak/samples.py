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
"""The part of a run that is not judged: caches fill, the log grows up to its retention."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at_s: float
    resident_bytes: int
    descriptors: int
    disk_bytes: int
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
    Quantity("resident memory", "MiB", lambda sample: sample.resident_bytes / MIB, 0.05, 4.0),
    Quantity("descriptors", "", lambda sample: sample.descriptors, 0.1, 4.0),
    Quantity("disk", "MiB", lambda sample: sample.disk_bytes / MIB, 0.1, 4.0),
)


def resident_bytes(process: int) -> int:
    """Memory of a process that is in RAM."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {process} has ended")


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


def growth(samples: Sequence[Sample], quantity: Quantity) -> tuple[float, float, bool]:
    """The quantity after the warm-up and at the end, as medians, and whether that is flat."""
    judged = [sample for sample in samples if sample.at_s >= WARM_UP * samples[-1].at_s]
    third = max(len(judged) // 3, 1)
    first = median(quantity.of(sample) for sample in judged[:third])
    last = median(quantity.of(sample) for sample in judged[-third:])
    return first, last, last <= first * (1 + quantity.share) + quantity.more
