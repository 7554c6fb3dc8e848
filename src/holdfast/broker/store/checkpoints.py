"""When derived state is written down, so that a start reads little of the log.

Owns: when a checkpoint is due, and its steps: it is taken down in pieces, waits until what it holds
is durable, and is written beside the loop. No acknowledgement waits for it. Never: knows what it
holds; the kernel does.

Invariant: at most one is on its way.
"""

import logging
from collections.abc import Callable

from holdfast.broker.chores import PIECE_EFFORT, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.broker.world import Commits
from holdfast.core.config import Config
from holdfast.kernel import DiskError, Job, Log

log = logging.getLogger(__name__)

RETRY_US = 10_000_000
"""How long a checkpoint waits for which the disk had no room."""


class Checkpoints:
    """Writes checkpoints."""

    def __init__(self, config: Config, kernel_log: Log, commits: Commits, beside: Beside) -> None:
        self._config = config
        self._log = kernel_log
        self._commits = commits
        self._beside = beside
        self._is_writing = False
        self._not_before_us = 0

    def reconfigure(self, config: Config) -> None:
        """Writes them by this from now on."""
        self._config = config

    def due(self, now_us: int) -> bool:
        """True if it is time for one."""
        if self._is_writing or self.waits_for_room(now_us):
            return False
        return self._log.bytes_since_checkpoint() > self._config.checkpoint_bytes

    def waits_for_room(self, now_us: int) -> bool:
        """True if the disk had no room for one just now."""
        return now_us < self._not_before_us

    def write(self, now_us: Callable[[], int]) -> Pieces[None]:
        """Writes one, a full disk permitting; while one is on its way, waits for that."""
        try:
            yield from self.write_now(now_us)
        except DiskError as error:
            if not error.full:
                raise
            self._not_before_us = now_us() + RETRY_US
            log.warning("a checkpoint waits for room on the disk")

    def write_now(self, now_us: Callable[[], int]) -> Pieces[None]:
        """The same; a full disk is an error."""
        if self._is_writing:
            yield lambda: not self._is_writing
            return
        self._is_writing = True
        try:
            self._log.begin_checkpoint(now_us())
            while not self._log.checkpoint_piece(PIECE_EFFORT):
                yield None
            job = yield from self._durable()
            yield from self._beside.run(job)
            self._log.finish(job)
        finally:
            self._is_writing = False

    def _durable(self) -> Pieces[Job]:
        """The checkpoint, once what it holds is durable."""
        jobs: list[Job] = []

        def is_durable() -> bool:
            if not jobs and (job := self._log.checkpoint_job()):
                jobs.append(job)
            return bool(jobs)

        self._commits.wake()
        yield is_durable
        return jobs[0]
