"""The log that the options name, opened once per process.

Owns: the one client or reader of a process.
"""

from functools import lru_cache
from pathlib import Path

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.pipeline.source.options import Options
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import ReadableLog
from holdfast.reading.remote import RemoteLog


@lru_cache(maxsize=4)
def _opened(
    broker: str | None,
    user: str | None,
    password: str | None,
    data_dir: str | None,
    cursor: str | None,
) -> ReadableLog:
    """One log per worker process: workers are reused, readers are unpickled for each task."""
    if broker is not None:
        return RemoteLog(broker, user, password, cursor=cursor)
    return LogDirectory(str(Path(str(data_dir)) / LOG_DIRECTORY))


def open_log(options: Options) -> ReadableLog:
    """The log that the options name; the same object for the same log in one process."""
    return _opened(options.broker, options.user, options.password, options.data_dir, options.cursor)
