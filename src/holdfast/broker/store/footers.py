"""When the footers of segments are written, so that no commit waits for one.

Owns: that at most one is on its way. Never: writes it; a job of the kernel does, beside the loop
(docs/adr/0033-footers-wait.md).
"""

import logging
from typing import Final

from holdfast.broker.chores import PIECE_EFFORT, Chores, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.kernel import DiskError, Job, Log

log = logging.getLogger(__name__)

RETRY_US: Final = 60_000_000
"""How long none is written after the disk had no room for one: the log is whole without it."""


class Footers:
    """Writes the footers that commits leave."""

    def __init__(self, kernel_log: Log, beside: Beside) -> None:
        self._log = kernel_log
        self._beside = beside
        self._is_writing = False
        self._not_before_us = 0
        kernel_log.leave_footers()

    def sweep(self, chores: Chores, now_us: int) -> None:
        """Called once a second: begins to write them if there are any to write."""
        if self._is_writing or now_us < self._not_before_us or not self._log.awaits_footer():
            return
        self._is_writing = True
        chores.begin(self._write_all(now_us), lambda _: None)

    def _write_all(self, now_us: int) -> Pieces[None]:
        try:
            while self._log.awaits_footer():
                yield from self._write_one()
        except DiskError as error:
            if not error.full:
                raise
            self._not_before_us = now_us + RETRY_US
            log.warning("a segment has no footer yet: the disk has no room for one")
        finally:
            self._is_writing = False

    def _write_one(self) -> Pieces[None]:
        while not self._log.prepare_seal(PIECE_EFFORT):
            yield None
        job: Job | None = self._log.seal_job()
        while job is not None:
            yield from self._beside.run(job)
            _, _, job = self._log.finish(job)
