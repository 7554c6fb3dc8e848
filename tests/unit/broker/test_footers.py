"""Footers of segments are written beside the loop, in sweeps (docs/adr/0033-footers-wait.md)."""

from holdfast.broker.chores import Chores
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.footers import Footers
from holdfast.broker.store.room import RETRY_US
from holdfast.kernel import Log, SimulatedDisk
from tests.builders.still import NOW_US, StillWorld

SEGMENT_BYTES = 2**16
DISK_BYTES = 2**24


class Kept:
    """A log on a simulated disk, and whoever writes its footers."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1, capacity_bytes=DISK_BYTES)
        self.log, _ = Log.open_simulated(
            self.disk,
            segment_bytes=SEGMENT_BYTES,
            cache_bytes=2**16,
            reserve_bytes=0,
            durability="fsync",
            seed=1,
            now_us=NOW_US,
        )
        self.chores = Chores(lambda: None)
        self.footers = Footers(self.log, Beside(StillWorld(), lambda: None))

    def put(self, count: int) -> None:
        """Control records, each with a commit of its own."""
        for number in range(count):
            self.log.append_control(9, b"key-%d" % number, bytes(100), NOW_US)
            self.log.commit()

    def sweep(self, now_us: int = NOW_US) -> None:
        self.footers.sweep(self.chores, now_us)
        while self.chores.is_busy():
            self.chores.run_piece()


def test_a_sweep_writes_what_commits_have_left() -> None:
    kept = Kept()
    kept.put(600)
    assert kept.log.awaits_footer()
    kept.sweep()
    assert not kept.log.awaits_footer()


def test_a_footer_without_room_is_tried_again_later_and_the_log_goes_on() -> None:
    kept = Kept()
    kept.put(600)
    kept.disk.set_capacity(0)
    kept.sweep()
    assert kept.log.awaits_footer()
    kept.disk.set_capacity(DISK_BYTES)
    kept.sweep(NOW_US + RETRY_US - 1)
    assert kept.log.awaits_footer()
    kept.sweep(NOW_US + RETRY_US)
    assert not kept.log.awaits_footer()
    kept.put(1)
