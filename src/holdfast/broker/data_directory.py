"""The data directory and who holds it.

Owns: the lock. Never: looks at what lies in the directory.

Invariant: a directory that another process holds is not changed in any way.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import system
from holdfast.core.errors import DirectoryError, DirectoryHeldError
from holdfast.core.layout import DIRECTORY_MODE

LOCK_FILE = "lock"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Makes the directory if it is not there, for this user alone, and holds it; the operating
    system lets go when this process ends in whatever way. Raises `DirectoryError` or
    `DirectoryHeldError`."""
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = (directory / LOCK_FILE).open("a+")
    except OSError as error:
        reason = error.strerror or str(error)
        if directory.is_symlink() and not directory.exists():
            reason = f"it is a symbolic link to {directory.readlink()}, which is not there"
        raise DirectoryError(f"the data directory {directory} cannot be used: {reason}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise DirectoryHeldError(
                f"the data directory {directory} is held by process {holder}; stop it first, or"
                " choose another with --data-dir"
            ) from error
        lock.truncate(0)
        lock.write(f"{system.process_id()}\n")
        lock.flush()
        yield
