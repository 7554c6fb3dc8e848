"""A copy of a log directory, taken beside a running broker, that a broker can be started on.

Owns: which files make one consistent state, and their copies. Never: changes the directory that is
copied, and does not ask the broker for anything.

Invariants:
1. Everything that was durable when `copy` began is in the copy, and nothing is in it by halves:
   sealed segments as they are, others up to the last whole record.
2. The files are held open before the first byte is copied, so retention can remove them meanwhile.
3. A checkpoint in the copy is older than the records in it: it was there before they were looked
   at.
4. The copy has its name only when every byte is synced and every checksum was read.

Control records (sessions, subscriptions, progress, credentials) are in the log; the view is not
copied, since a broker builds it again.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.core.errors import BackupError
from holdfast.core.layout import DIRECTORY_MODE, FORMAT_FILE, LOG_DIRECTORY
from holdfast.kernel import LogReader

ATTEMPTS_MAXIMUM: Final = 100
"""Looks at a log whose segments come and go while it is looked at; each takes milliseconds, and a
segment lives for longer."""
PART_BYTES: Final = 8 << 20
"""Copied in one system call, so that the copy can be interrupted between two."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds."""

    epoch: str
    begin_offset: int
    end_offset: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A file of the state to be copied, and how much of it belongs to that."""

    name: str
    source: BinaryIO
    bytes: int


def copy(data_dir: Path, target: Path) -> Copied:
    """Copies the log of `data_dir` to `target`, a directory that does not exist or is empty, and
    reads every checksum of the copy. Blocks for as long as that takes. Raises `BackupError`."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(
            f"{target} is in use; name an empty directory, or one that is not there yet"
        )
    directory = data_dir / LOG_DIRECTORY
    if not (directory / FORMAT_FILE).is_file():
        raise BackupError(f"there is no log in {data_dir}")
    if data_dir.resolve() in (place := target.resolve()).parents or data_dir.resolve() == place:
        raise BackupError(f"{target} lies in {data_dir}: what takes that would take the copy too")
    partial = target.with_name(target.name + ".partial")
    if partial.exists():
        raise BackupError(f"{partial} is left of a copy that was not finished; remove it first")
    try:
        partial.mkdir(mode=DIRECTORY_MODE, parents=True)
    except OSError as error:
        raise BackupError(f"{target} cannot be made: {error.strerror or error}") from error
    try:
        (partial / LOG_DIRECTORY).mkdir()
        with _held(directory) as files:
            for file in files:
                _copy_file(file, partial / LOG_DIRECTORY / file.name)
        copied = _verified(partial)
        _sync(partial / LOG_DIRECTORY)
        _sync(partial)
        partial.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return copied


@contextmanager
def _held(directory: Path) -> Iterator[list[_Held]]:
    """The files of one state, open."""
    for _ in range(ATTEMPTS_MAXIMUM):
        with ExitStack() as stack:
            files = _hold(directory, stack)
            if files is not None:
                yield files
                return
    raise BackupError(f"the segments of {directory} come and go too fast to be copied")


def _hold(directory: Path, stack: ExitStack) -> list[_Held] | None:
    """Opens what belongs to the state of this moment; `None` if that changed meanwhile."""
    try:
        files = [_open(directory / name, stack) for name in _checkpoints(directory)]
        files.append(_open(directory / FORMAT_FILE, stack))
        before = _segments(directory)
        segments = LogReader.open(str(directory)).segments()
        for segment in segments:
            whole = None if segment["sealed"] else segment["bytes"]
            files.append(_open(directory / Path(segment["file"]).name, stack, whole))
    except FileNotFoundError:
        return None
    # Only the last one may be growing: where one before it was when it was looked at, what was
    # looked at after it does not follow on what was seen of it.
    gap = any(not segment["whole"] for segment in segments[:-1])
    return None if gap or _segments(directory) != before else files


def _open(path: Path, stack: ExitStack, count: int | None = None) -> _Held:
    """Raises `FileNotFoundError` where it is not there, or about to go."""
    source = stack.enter_context(path.open("rb"))
    try:
        # A broker that removes it leaves its bytes to whoever holds it.
        fcntl.flock(source, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileNotFoundError(path) from error
    return _Held(path.name, source, os.fstat(source.fileno()).st_size if count is None else count)


def _checkpoints(directory: Path) -> list[str]:
    return [
        path.name for path in directory.glob("checkpoint-*") if path.suffix not in (".partial",)
    ]


def _segments(directory: Path) -> set[str]:
    return {path.name for kind in ("segment", "carry") for path in directory.glob(f"{kind}-*.log")}


def _copy_file(file: _Held, path: Path) -> None:
    with path.open("xb") as target:
        position = 0
        while position < file.bytes:
            # A file system that can shares the blocks instead of copying them.
            part = min(PART_BYTES, file.bytes - position)
            count = _copy_part(file.source.fileno(), target.fileno(), part, position)
            if count == 0:
                raise BackupError(f"{file.name} has become shorter while it was copied")
            position += count
        os.fsync(target.fileno())


def _copy_part(source: int, target: int, count: int, position: int) -> int:
    try:
        return os.copy_file_range(source, target, count, position, position)
    except OSError:
        # Between some file systems only bytes in memory can be copied.
        return os.pwrite(target, os.pread(source, count, position), position)


def _verified(data_dir: Path) -> Copied:
    directory = data_dir / LOG_DIRECTORY
    reader = LogReader.open(str(directory))
    for damage in reader.verify():
        place = f"bytes {damage['first_position']} to {damage['end_position']}"
        raise BackupError(f"the copy of {damage['file']} is damaged, {place}: {damage['reason']}")
    files = [path for path in directory.iterdir() if path.is_file()]
    return Copied(
        epoch=reader.epoch(),
        begin_offset=reader.begin_offset(),
        end_offset=reader.end_offset(),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
    )


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
