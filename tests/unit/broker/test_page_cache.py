"""What lies far behind the log's end leaves the system's memory, in sweeps
(docs/adr/0037-what-lies-far-behind-leaves-memory.md)."""

import asyncio
import ctypes
import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.chores import Chores
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.footers import Footers
from holdfast.broker.store.page_cache import PageCache
from holdfast.core.config import Config
from holdfast.kernel import Log
from tests.builders.still import NOW_US, StillWorld, settled
from tests.tidy.repository import ROOT

SEGMENT_BYTES = 2**20
KEPT_BYTES = 2 * SEGMENT_BYTES


class Kept:
    """A log on the real disk, and whoever gives its memory back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log, _ = Log.open(
            str(directory),
            segment_bytes=SEGMENT_BYTES,
            cache_bytes=SEGMENT_BYTES,
            reserve_bytes=0,
            durability="fsync",
            seed=1,
            now_us=NOW_US,
        )
        self.chores = Chores(lambda: None)
        beside = Beside(StillWorld(), lambda: None)
        self.footers = Footers(self.log, beside)
        self.page_cache = PageCache(self._config(KEPT_BYTES), self.log, beside)

    def _config(self, kept_bytes: int) -> Config:
        return Config(data_dir=self.directory, page_cache_bytes=kept_bytes)

    def fill(self, segments: int) -> None:
        """So many segments, and a little of the next."""
        fill(self.log, segments)

    def sweep(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.page_cache.reconfigure(self._config(kept_bytes))
        for sweep in (lambda: self.footers.sweep(self.chores, NOW_US), self._begin):
            sweep()
            while self.chores.is_busy():
                self.chores.run_piece()

    def cached(self) -> list[bool]:
        """Whether the system has anything of each sealed segment in memory."""
        return cached(self.directory)

    def _begin(self) -> None:
        self.page_cache.sweep(self.chores)


def fill(log: Log, segments: int) -> None:
    """So many segments, and a little of the next."""
    for number in range(segments * 17):
        log.append_control(9, b"key-%d" % (number % 40), bytes(65_000), NOW_US)
        log.commit()


def cached(directory: Path) -> list[bool]:
    files = sorted(directory.glob("segment-*.log"))[:-1]
    return [_pages_in_memory(file) > 0 for file in files]


@pytest.fixture
def disk() -> Iterator[Path]:
    """Not where temporary files may lie in memory altogether."""
    (ROOT / "target").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as name:
        yield Path(name)


@pytest.fixture
def kept(disk: Path) -> Kept:
    return Kept(disk)


def _pages_in_memory(file: Path) -> int:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        size = ctypes.c_size_t(len(mapped))
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), size, pages)
        del start  # A mapping that somebody points to cannot be closed.
        assert not failed, ctypes.get_errno()
        return sum(page & 1 for page in pages)


def test_a_sweep_gives_back_what_lies_further_behind_than_is_kept(kept: Kept) -> None:
    kept.fill(5)
    assert all(kept.cached())
    kept.sweep()
    assert kept.cached() == [False, False, False, True, True]


def test_how_much_is_kept_can_change_and_what_is_read_again_stays(kept: Kept) -> None:
    kept.fill(5)
    kept.sweep(kept_bytes=2**40)
    assert all(kept.cached())
    kept.sweep(kept_bytes=0)
    assert not any(kept.cached())
    sorted(kept.directory.glob("segment-*.log"))[0].read_bytes()
    kept.sweep(kept_bytes=0)
    assert kept.cached() == [True, False, False, False, False]


def test_a_broker_does_so_each_second_by_the_settings_that_it_has_then(disk: Path) -> None:
    async def run() -> tuple[list[bool], list[bool]]:
        config = Config(
            data_dir=disk,
            segment_bytes=SEGMENT_BYTES,
            page_cache_bytes=KEPT_BYTES,
            retention_bytes=2**30,
        )
        world = StillWorld()
        server = assemble(config, world)
        fill(server.stages.kernel.log, 5)
        found = []
        for page_cache_bytes in (KEPT_BYTES, 0):
            server.sweep.reconfigure(replace(config, page_cache_bytes=page_cache_bytes))
            for _ in range(2):  # Footers come before.
                world.time_us += 1_000_000
                server.sweep.run(world.time_us)
                await settled(world)
            found.append(cached(disk))
        return found[0], found[1]

    some, none = asyncio.run(run())
    assert some[:3] == [False, False, False]
    assert any(some)
    assert not any(none)
