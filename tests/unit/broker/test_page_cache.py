"""What lies far behind the log's end leaves the system's memory, in sweeps
(docs/adr/0037-what-lies-far-behind-leaves-memory.md)."""

import ctypes
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.chores import Chores
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.footers import Footers
from holdfast.broker.store.page_cache import PageCache
from holdfast.core.config import Config
from holdfast.kernel import Log
from tests.builders.still import NOW_US, StillWorld
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
        for number in range(segments * 17):
            self.log.append_control(9, b"key-%d" % (number % 40), bytes(65_000), NOW_US)
            self.log.commit()

    def sweep(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.page_cache.reconfigure(self._config(kept_bytes))
        for sweep in (lambda: self.footers.sweep(self.chores, NOW_US), self._begin):
            sweep()
            while self.chores.is_busy():
                self.chores.run_piece()

    def cached(self) -> list[bool]:
        """Whether the system has anything of each sealed segment in memory."""
        files = sorted(self.directory.glob("segment-*.log"))[:-1]
        return [_pages_in_memory(file) > 0 for file in files]

    def _begin(self) -> None:
        self.page_cache.sweep(self.chores)


@pytest.fixture
def kept() -> Iterator[Kept]:
    # Not where temporary files may lie in memory altogether.
    (ROOT / "target").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as name:
        yield Kept(Path(name))


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
