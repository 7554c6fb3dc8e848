"""The control socket: where the commands of `holdfast` on the same host reach a running broker.

Owns: the socket file in the data directory. Never: answers; the HTTP application does.

Invariants:
1. Whoever may open the file is an administrator: it belongs to the broker's user, mode 0600, before
   the first connection can be made.
2. What lies there from an earlier life is removed only by whoever holds the data directory, and
   only if it is a socket.
"""

import asyncio
import logging
import os
import socket
import stat
from pathlib import Path

from aiohttp import web

BACKLOG_CONNECTIONS = 64
"""Commands of one operator, not clients."""

log = logging.getLogger(__name__)


class ControlSocket:
    """The listener, and its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: asyncio.Server | None = None

    async def listen(self, runner: web.AppRunner) -> None:
        """Serves the application here too. Where the file system has no sockets the broker serves
        without one, and says so: the commands need it, clients do not."""
        assert runner.server is not None, "the runner is set up"
        loop = asyncio.get_running_loop()
        try:
            bound = _bind(self._path)
        except OSError as error:
            fields = {"path": self._path, "reason": error.strerror or error}
            log.warning("no control socket", extra={"fields": fields})
            return
        self._server = await loop.create_unix_server(
            runner.server, sock=bound, backlog=BACKLOG_CONNECTIONS
        )

    def close(self) -> None:
        """Listens no more, and removes the file."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._path.unlink(missing_ok=True)


def is_local(request: web.Request) -> bool:
    """True if a request came through the control socket."""
    transport = request.transport
    if transport is None:
        return False
    return bool(transport.get_extra_info("socket").family == socket.AF_UNIX)


def _bind(path: Path) -> socket.socket:
    if path.is_symlink() or path.exists():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(0, "something else than a socket has its name")
        path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # An address has room for 107 bytes, a path for thousands; a descriptor names any directory.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        bound.bind(f"/proc/self/fd/{directory}/{path.name}")
        # Nobody can connect before the socket listens, so there is no moment of another mode.
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    finally:
        os.close(directory)
    bound.setblocking(False)
    return bound
