"""When the next segment's file is written ahead of time, so that commits into it are quicker.

Owns: that at most one is on its way. Never: writes it; a job of the kernel does, beside the loop
(docs/adr/0031-segments-are-written-ahead.md).
"""

import logging
from typing import Final

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.kernel import DiskError, Job, Log

log = logging.getLogger(__name__)

RETRY_US: Final = 60_000_000
"""How long none is written after the disk had no room for one: commits do without."""


class SegmentsAhead:
    """Writes files of later segments."""

    def __init__(self, kernel_log: Log, beside: Beside) -> None:
        self._log = kernel_log
        self._beside = beside
        self._is_writing = False
        self._not_before_us = 0

    def sweep(self, chores: Chores, now_us: int) -> None:
        """Called once a second: begins to write one where it is due."""
        if self._is_writing or now_us < self._not_before_us:
            return
        job = self._log.ahead_job()
        if job is not None:
            self._is_writing = True
            chores.begin(self._write_ahead(job, now_us), lambda _: None)

    def _write_ahead(self, job: Job, now_us: int) -> Pieces[None]:
        try:
            yield from self._beside.run(job)
            self._log.finish(job)
        except DiskError as error:
            if not error.full:
                raise
            self._not_before_us = now_us + RETRY_US
            log.warning("no segment is written ahead: the disk has no room for one")
        finally:
            self._is_writing = False
