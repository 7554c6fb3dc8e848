"""When the footers of segments are written, so that no commit waits for one.

Owns: when. Never: writes one; a job of the kernel does, beside the loop
(docs/adr/0033-footers-wait.md).
"""

from holdfast.broker.chores import PIECE_EFFORT, Chores, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.room import WhereThereIsRoom
from holdfast.kernel import LIMITS, DiskError, Job, Log


class Footers:
    """Writes the footers that commits leave."""

    def __init__(self, kernel_log: Log, beside: Beside) -> None:
        self._log = kernel_log
        self._beside = beside
        self._room = WhereThereIsRoom("a segment has no footer yet")
        kernel_log.leave_footers()

    def sweep(self, chores: Chores, now_us: int) -> None:
        """Called once a second: begins to write them if there are any to write."""
        if self._room.may_begin(now_us) and self._log.awaits_footer():
            self._room.begin(chores, self._write_all(), now_us)

    def catch_up(self) -> Pieces[None]:
        """Writes those that wait, as far as the disk has room, and no more than may wait, however
        fast others fill segments: for a chore that does so faster than a sweep looks. Where the
        disk has no room the sweep says so."""
        try:
            for _ in range(LIMITS["unsealed_segments_maximum"]):
                if self._log.awaits_footer():
                    yield from self._write_next()
        except DiskError as error:
            if not error.full:
                raise

    def _write_all(self) -> Pieces[None]:
        while self._log.awaits_footer():
            yield from self._write_next()

    def _write_next(self) -> Pieces[None]:
        while not self._log.prepare_seal(PIECE_EFFORT):
            yield None
        job: Job | None = self._log.seal_job()
        while job is not None:
            yield from self._beside.run(job)
            _, _, job = self._log.finish(job)
