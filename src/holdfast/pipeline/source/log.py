"""The log that the options name, opened once per process.

Owns: the one client or reader of a process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from holdfast.core.layout import FORMAT_FILE, LOG_DIRECTORY
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.patience import BATCH_PATIENCE_S, Patience, PatientLog
from holdfast.reading.ahead import ReadAhead
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import ReadableLog
from holdfast.reading.remote import RemoteLog


@lru_cache(maxsize=4)
def opened(
    broker: str | None,
    user: str | None,
    password: str | None,
    data_dir: str | None,
    cursor: str | None,
    reader: str | None,
    _log: tuple[int, int, int] | None,
) -> LogDirectory | RemoteLog:
    """One log per worker process: workers are reused, readers are unpickled for each task."""
    if broker is not None:
        return RemoteLog(broker, user, password, cursor=cursor, reader=reader)
    return LogDirectory(str(Path(str(data_dir)) / LOG_DIRECTORY))


def open_log(options: Options, patience_s: float = BATCH_PATIENCE_S) -> ReadableLog:
    """The log that the options name, waited for as long as they say; without them, `patience_s`."""
    return _patient(open_without_waiting(options), options, patience_s)


@contextmanager
def open_ahead(options: Options, patience_s: float) -> Iterator[ReadableLog]:
    """The same for a task: while Spark takes a chunk, the next one is on its way."""
    with ReadAhead(open_without_waiting(options)) as ahead:
        yield _patient(ahead, options, patience_s)


def _patient(found: ReadableLog, options: Options, patience_s: float) -> ReadableLog:
    if options.broker is None:
        return found
    return PatientLog(found, patience_of(options, patience_s))


def patience_of(options: Options, patience_s: float) -> Patience:
    """As much as the options say; without them, `patience_s`."""
    return Patience(patience_s if options.timeout_s is None else options.timeout_s)


def open_without_waiting(options: Options) -> LogDirectory | RemoteLog:
    """The same; what is away raises at once."""
    return opened(
        options.broker,
        options.user,
        options.password,
        options.data_dir,
        options.cursor,
        options.reader,
        None if options.data_dir is None else _made(options.data_dir),
    )


def _made(data_dir: str) -> tuple[int, int, int] | None:
    """Which of the logs it is that have lain in this directory. A worker outlives queries, and with
    its files open a log that was removed can be read on."""
    try:
        found = (Path(data_dir) / LOG_DIRECTORY / FORMAT_FILE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
