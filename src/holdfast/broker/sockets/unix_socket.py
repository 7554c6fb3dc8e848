"""Listening on a Unix domain socket.

Owns: the socket's file: its permissions, and its removal. Never: removes a file that is not a
socket, or one that somebody answers on.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.broker.sockets.connection import Connection, TurnSockets
from holdfast.core.errors import ListenError

NOBODY_YET = 0o600
"""Permissions until those that are wanted have been set, so that nobody is too early."""


class UnixListener:
    """One socket and its file."""

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        self._mode = mode
        self._identity: tuple[int, int] | None = None
        self._close: Callable[[], None] | None = None

    async def start(
        self, make: Callable[[], Connection], backlog: int, plain: TurnSockets | None
    ) -> None:
        """Listens; connections are taken by `plain`, or by the event loop where there is none.
        Raises `ListenError`."""
        try:
            listening = self._bind()
        except OSError as error:
            raise ListenError(f"cannot listen on {self.path}: {_reason(error)}") from error
        if plain is not None:
            listening.listen(backlog)
            plain.listen(listening, make)
            self._close = partial(plain.close, listening)
            return
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(make, sock=listening, backlog=backlog)
        self._close = server.close

    def close(self) -> None:
        """Listens no more, and removes the file if it is still ours."""
        if self._close is not None:
            self._close()
        if self._identity is not None and _identity(self.path) == self._identity:
            self.path.unlink()

    def _bind(self) -> socket.socket:
        _remove_stale(self.path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), NOBODY_YET)
            listening.bind(str(self.path))
            self._identity = _identity(self.path)
            self.path.chmod(self._mode)
        except OSError:
            listening.close()
            raise
        return listening


def _remove_stale(path: Path) -> None:
    """Removes the socket of a process that has ended; raises `OSError` for anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # Somebody listens and is busy.
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
