"""Let one process at a time write a table.

Owns: a file beside each table, and the system's lock on it, which ends with its process.
Never: waits; a second writer is told at once who the first one is.
"""

import fcntl
import os
from pathlib import Path
from typing import IO

from holdfast.core.errors import OperatingError

FOLDER = ".locks"


class TableLockedError(OperatingError):
    """Another process writes the table."""

    retriable = True


class WriterLock:
    """The right to write one table of a directory; `with` gives it back."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / FOLDER / f"{name}.lock"
        self._name = name
        self._file: IO[str] | None = None

    def __enter__(self) -> "WriterLock":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise TableLockedError(
                f"the table {self._name} in {self._path.parent.parent} is being written by"
                f" {holder}; end that first, since a table has one writer"
            ) from held
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
