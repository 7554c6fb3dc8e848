"""What a result must say about where it was measured."""

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PROBE_BYTES = 700
PROBE_APPENDS = 60
BLOCK_BYTES = 2**20
BLOCKS = 64
BLOCKS_A_SYNC = 8

QUIET_FDATASYNC_US = 400
"""A sync that takes longer says that the disk still works off, or is held back for, what came
before; a virtual machine's disk may stand still for seconds after a burst."""
QUIET_WITHIN_SECONDS = 60
QUIET_REST_SECONDS = 2


def describe() -> dict[str, Any]:
    """Processor, cores, memory, system."""
    return {
        "processor": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / 2**20, 1),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def commit() -> str:
    """The commit, with a plus sign where the measured files differ from it."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return answer.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "kernel", "kernel-py", "bench/load")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def quiet_fdatasync_us(directory: Path) -> float:
    """Waits until the disk is quiet, or for a minute; what a sync takes then, in microseconds."""
    began = time.monotonic()
    while (took_us := fdatasync_us(directory)) > QUIET_FDATASYNC_US:
        if time.monotonic() - began > QUIET_WITHIN_SECONDS:
            break
        time.sleep(QUIET_REST_SECONDS)
    return took_us


def sequential_bytes_per_second(directory: Path) -> float:
    """What the disk takes in order, with a sync every 8 MiB."""
    path = directory / "blocks"
    block = os.urandom(BLOCK_BYTES)
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for number in range(1, BLOCKS + 1):
            file.write(block)
            if number % BLOCKS_A_SYNC == 0:
                os.fdatasync(file.fileno())
    took_s = time.perf_counter() - start
    path.unlink()
    return BLOCKS * BLOCK_BYTES / took_s


def fdatasync_us(directory: Path) -> float:
    """The median time of an append of one small record and its fdatasync, in microseconds."""
    path = directory / "probe"
    record = b"." * PROBE_BYTES
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(PROBE_APPENDS):
            start = time.perf_counter()
            os.write(descriptor, record)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times) * 1e6
