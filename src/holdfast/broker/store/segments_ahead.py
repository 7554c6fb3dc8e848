"""When the next segment's file is written ahead of time, so that commits into it are quicker.

Owns: when. Never: writes it; a job of the kernel does, beside the loop
(docs/adr/0031-segments-are-written-ahead.md).
"""

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.room import WhereThereIsRoom
from holdfast.kernel import Job, Log


class SegmentsAhead:
    """Writes files of later segments."""

    def __init__(self, kernel_log: Log, beside: Beside) -> None:
        self._log = kernel_log
        self._beside = beside
        self._room = WhereThereIsRoom("no segment is written ahead")

    def sweep(self, chores: Chores, now_us: int) -> None:
        """Called once a second: begins to write one where it is due."""
        if self._room.may_begin(now_us) and (job := self._log.ahead_job()) is not None:
            self._room.begin(chores, self._write(job), now_us)

    def _write(self, job: Job) -> Pieces[None]:
        yield from self._beside.run(job)
        self._log.finish(job)
