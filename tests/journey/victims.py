"""Processes that a round may kill: the driver's own, its JVM, its executors and Python workers.

Owns: which process is what, among the descendants of the driver that the round itself has started.
Never: names a process that is not one of them.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

PROCESSES = Path("/proc")


class Part(Enum):
    """What may be killed."""

    BROKER = "broker"
    DRIVER = "driver"
    EXECUTOR = "executor"
    WORKER = "Python worker"
    DEVICES = "devices"


MARKS = {Part.EXECUTOR: "CoarseGrainedExecutorBackend", Part.WORKER: "pyspark.daemon"}
"""Words of the command line by which a process is known."""


def descendants(root: int) -> list[int]:
    """The processes below this one, parents before children."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found, new = list[int](), [root]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found


def found(part: Part, driver: int) -> list[int]:
    """The executors, or the Python workers, of a driver."""
    return [process for process in descendants(driver) if MARKS[part] in _command(process)]


def kill(processes: list[int]) -> None:
    """kill -9; one that has ended by itself needs none."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in PROCESSES.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything, so what follows is counted from its end.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1])


def _command(process: int) -> str:
    try:
        raw = (PROCESSES / str(process) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace")
