"""Plain TCP and Unix sockets: the turn reads all that are ready in one call, and writes in another.

Owns: from which listening sockets connections are taken, which are opened from here, and which
connection each socket of the kernel's `Sockets` is. Never: has a layer above it; TLS, WebSocket and
PROXY stand on the event loop's own transports, as everything does where there is no such table (a
simulation).

Invariant: between `connection_made` and `connection_lost` a connection has one token.

Flow: listeners, dialer -> here -> connection; the turn -> connections -> here -> inboxes, outboxes.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from socket import AF_INET, AF_INET6, socket
from typing import Any, Final

from holdfast.broker.ground import Ground
from holdfast.broker.sockets.connection import Connection, News
from holdfast.broker.sockets.taken import taken_of
from holdfast.broker.steps import Steps
from holdfast.kernel import Sockets

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 64
"""Connections that are taken from one listening socket before others have their turn: those that
come together share what a turn costs."""
ACCEPT_PAUSE_S: Final = 1.0
"""How long none is taken where the system has no descriptor or memory for another one."""
UNNAMED: Final = ""
"""The address of a Unix socket's peer."""
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PlainTransport(asyncio.Transport):
    """One socket of the kernel's, as its connection sees it."""

    __slots__ = ("_descriptor", "_is_closing", "_peer_name", "_plain", "token")

    def __init__(
        self, plain: "PlainSockets", token: int, peer_name: Any, descriptor: int | None = None
    ) -> None:
        """`descriptor`: its socket's, which the kernel has taken over; of one opened from here."""
        self._plain = plain
        self._descriptor = descriptor
        self._peer_name = peer_name
        self._is_closing = False
        self.token = token

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends at once what the system takes, and the rest when it takes more."""
        self._plain.sockets.write(self.token, bytes(data))

    def close(self) -> None:
        """Reads no more; what was written still leaves."""
        if not self._is_closing:
            self._is_closing = True
            self._plain.sockets.close(self.token)
            self._plain.ask_turn()

    def abort(self) -> None:
        """Ends it where it is."""
        self._is_closing = True
        self._plain.sockets.abort(self.token)
        self._plain.ask_turn()

    def is_closing(self) -> bool:
        """True if nothing can be written any more."""
        return self._is_closing

    def gone(self) -> None:
        """The socket is closed, and its token will be another one's."""
        self._is_closing = True
        self._descriptor = None
        self.token = GONE

    def pause_reading(self) -> None:
        """Nothing more is read from the peer."""
        self._plain.sockets.set_reading(self.token, False)

    def resume_reading(self) -> None:
        """It is read again."""
        self._plain.sockets.set_reading(self.token, True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When `pause_writing` and `resume_writing` are called."""
        self._plain.sockets.set_limits(self.token, high or 0, low or 0)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the peer."""
        return self._plain.sockets.waiting_bytes(self.token)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where it comes from and where it arrived: `peername` and `sockname`; and `taken` of one
        that was opened from here, as in `sockets.taken`."""
        if name == "peername":
            return self._peer_name
        if name == "taken" and self._descriptor is not None:
            return taken_of(self._descriptor)
        return (self._plain.sockets.here(self.token) or default) if name == "sockname" else default


GONE: Final = 2**32 - 1
"""The token of no socket."""


class PlainSockets:
    """The sockets and their connections."""

    def __init__(self, ground: Ground, sockets: Sockets, steps: Steps) -> None:
        self.sockets = sockets
        self.ask_turn = ground.schedule.soon
        self._schedule = ground.schedule
        self._kernel = ground.kernel
        self._now_us = ground.world.now_us
        self._steps = steps
        self.tells_all = False
        """All that are fed are news, since they are to be paused."""
        self._connections: dict[int, Connection] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sockets.fileno(), self.receive)

    def listen(self, listening: socket, make: Callable[[], Connection]) -> None:
        """Takes connections from a socket that listens, until `close`."""
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept, listening, make)

    def close(self, listening: socket) -> None:
        """Takes no more from it."""
        self._loop.remove_reader(listening.fileno())
        listening.close()

    async def connect(self, make: Callable[[], Connection], host: str, port: int) -> None:
        """Opens a connection to an address. Raises `OSError`."""
        opened = socket(AF_INET6 if ":" in host else AF_INET)
        try:
            opened.setblocking(False)
            await self._loop.sock_connect(opened, (host, port))
            address = opened.getpeername()
        except BaseException:
            opened.close()
            raise
        descriptor = opened.detach()
        self._begin(self.sockets.add(descriptor), address, make(), descriptor)

    def accepted(self, connection: Connection, read_ahead_bytes: int) -> None:
        """It may have so much waiting undecoded before anybody is told; until now, nothing."""
        if isinstance(connection.transport, PlainTransport):
            self.sockets.read_ahead(connection.transport.token, read_ahead_bytes)

    def receive(self) -> None:
        """What has come is in the inboxes, and a turn takes it, with a commit that has ended;
        acknowledgements that free no room that anything waits for are in no hurry."""
        kernel, began_ns = self._kernel, self._steps.ticks_ns()
        is_urgent, has_committed = self.sockets.receive(
            kernel.inbox,
            kernel.pulsar_inbox,
            kernel.deliveries,
            self._now_us(),
            tells_all=self.tells_all,
        )
        self._steps.ended("read", "sockets", self._steps.ticks_ns() - began_ns)
        if has_committed:
            self._schedule.commit_ended = True
        if is_urgent or has_committed:
            self._schedule.at_once()
        else:
            self._schedule.in_company()

    def send(self) -> tuple[list[tuple[int, bytes]], bool]:
        """What waits in the outboxes is sent; returns what is for connections that are none of
        these, and whether there is news."""
        return self.sockets.send(self._kernel.outboxes, self._kernel.pulsar_outboxes)

    def news(self) -> News:
        """What has to be told of connections since the last call; who is gone has no socket here
        any more."""
        fed, changed, gone = self.sockets.news()
        by_token = self._connections
        told = News(
            [(by_token[token], count) for token, count in fed],
            [(by_token[token], writable) for token, writable in changed],
            [by_token.pop(token) for token in gone],
        )
        for connection in told.gone:
            if isinstance(connection.transport, PlainTransport):
                connection.transport.gone()
        return told

    def totals(self) -> tuple[int, int]:
        """Bytes that have come, and that were handed out, since the start."""
        return self.sockets.totals()

    def _accept(self, listening: socket, make: Callable[[], Connection]) -> None:
        accepted, error_number = self.sockets.accept(listening.fileno(), ACCEPTED_AT_ONCE)
        for token, address in accepted:
            self._begin(token, address or UNNAMED, make())
        # Of one that was gone before it was taken nothing is to be said.
        if error_number in EXHAUSTED:
            self._pause_accepting(listening, make, error_number)

    def _begin(
        self, token: int, address: Any, connection: Connection, descriptor: int | None = None
    ) -> None:
        self._connections[token] = connection
        transport = PlainTransport(self, token, address, descriptor)
        connection.connection_made(transport)
        if not transport.is_closing():
            is_pulsar = connection.codec.protocol == "pulsar"
            self.sockets.begin(token, connection.handle, is_pulsar=is_pulsar)

    def _pause_accepting(
        self, listening: socket, make: Callable[[], Connection], error_number: int
    ) -> None:
        fields = {"reason": os.strerror(error_number), "seconds": ACCEPT_PAUSE_S}
        log.warning("no connections are taken for a while", extra={"fields": fields})
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listening, make)

    def _accept_again(self, listening: socket, make: Callable[[], Connection]) -> None:
        if listening.fileno() >= 0:
            self.listen(listening, make)
