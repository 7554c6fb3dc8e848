"""A small disk for a real broker.

Owns: a file system of its own, where this process may mount one; elsewhere a reserve that leaves
little room on the memory file system that every Linux has. Never: touches other disks.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
SIZE_BYTES = 64 * MIB
ROOM_BYTES = 40 * MIB
RESERVE_BYTES = 8 * MIB
BALLAST_BYTES = 16 * MIB
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """Where a broker finds little room."""

    directory: Path
    reserve_bytes: int
    """What the broker is to be told to keep free."""
    is_its_own: bool
    """Whether it is a file system that nobody else is on."""

    def fill(self) -> None:
        """Something else takes room, until `free`."""
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)

    def fill_up(self) -> None:
        """Something else takes all the room there is, until `free`."""
        assert self.is_its_own, "others would miss the room"
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.directory).free)

    def free(self) -> None:
        """The operator removes it."""
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[SmallDisk]:
    """A disk for one test; `place` is an empty directory."""
    size = ["-o", f"size={SIZE_BYTES}"]
    mounted = subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", place], check=False)
    if mounted.returncode == 0:
        try:
            yield SmallDisk(place, RESERVE_BYTES, is_its_own=True)
        finally:
            # Who met the full disk may have a file open still: the disk goes when that is closed.
            subprocess.run(["umount", "--lazy", place], check=True)
        return
    directory = Path(tempfile.mkdtemp(prefix="holdfast-small-", dir=SHARED_MEMORY))
    free_bytes = shutil.disk_usage(directory).free
    try:
        yield SmallDisk(directory, free_bytes - ROOM_BYTES, is_its_own=False)
    finally:
        shutil.rmtree(directory)
