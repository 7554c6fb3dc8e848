"""When the system gets back the memory that it has for files of the log.

Owns: when, and how much of the log's end is left there. Never: gives it back; a job of the kernel
does, beside the loop (docs/adr/0037-what-lies-far-behind-leaves-memory.md).
"""

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.core.config import Config
from holdfast.kernel import Job, Log


class PageCache:
    """Gives back what segments far behind the log's end take of it."""

    def __init__(self, config: Config, kernel_log: Log, beside: Beside) -> None:
        self._log = kernel_log
        self._beside = beside
        self._is_under_way = False
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Keeps so much from now on."""
        self._kept_bytes = config.page_cache_bytes

    def sweep(self, chores: Chores) -> None:
        """Called once a second: begins with what has fallen behind since."""
        if not self._is_under_way and (job := self._log.release_job(self._kept_bytes)) is not None:
            self._is_under_way = True
            chores.begin(self._release(job), lambda _: None)

    def _release(self, job: Job | None) -> Pieces[None]:
        try:
            while job is not None:
                yield from self._beside.run(job)
                self._log.finish(job)
                job = self._log.release_job(self._kept_bytes)
        finally:
            self._is_under_way = False
