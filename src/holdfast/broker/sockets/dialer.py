"""Connections that are opened from here.

Owns: what stands between such a connection and its socket, and which of a remote's addresses it
leads to. Never: decides when one is opened, or what is said on it.

One without layers is a plain socket, read and written by the turn where there are such.
Certificates and files with passwords are read for each connection, by a worker, so those that were
renewed are taken.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from ssl import SSLContext
from typing import TypeVar

from websockets.uri import parse_uri

from holdfast.broker.counts import Counts
from holdfast.broker.ground import Ground
from holdfast.broker.sockets.certificates import client_context
from holdfast.broker.sockets.connection import Connections, Opener, show_address
from holdfast.broker.sockets.layer import Upper
from holdfast.broker.sockets.names import Names
from holdfast.broker.sockets.tls import Handshakes, TlsLinkLayer
from holdfast.broker.sockets.websocket_link import WebSocketLinkLayer
from holdfast.core.bridge import Bridge, Place
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import (
    CONNECT_TIMEOUT_S,
    DIALLED_ADDRESSES_MAXIMUM,
    READ_BUFFER_BYTES,
)

T = TypeVar("T")


class Dialer:
    """Opens connections."""

    def __init__(self, ground: Ground, connections: Connections) -> None:
        self._connections = connections
        self._counts: Counts = ground.counts
        self._handshakes = Handshakes(ground.world.workers)
        self._workers = ground.world.workers(1)
        self._names = Names(ground.world.resolver())
        self._frame_bytes = max(ground.config.maximum_packet_size_bytes, READ_BUFFER_BYTES)

    async def dial(self, bridge: Bridge, opener: Opener) -> None:
        """Opens a connection for somebody, who is told when it can be written to; its handshakes
        may still be under way on return. Raises `OSError` or `TimeoutError`."""
        place, ends_at = bridge.place, asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        addresses = await self._addresses(bridge, ends_at)
        async with asyncio.timeout_at(ends_at):
            context = None
            if place.transport in ("tls", "wss"):
                context = await self._done_by_worker(partial(client_context, bridge.tls))
            plain = self._connections.plain
            if place.transport == "tcp" and plain is not None:
                make = partial(self._connections.make, place.transport, opener)
                await _reach(addresses, place.port, ends_at, partial(plain.connect, make))
                return
            stack = partial(self._stack, bridge, place, context, opener)
            connect = partial(asyncio.get_running_loop().create_connection, stack)
            await _reach(addresses, place.port, ends_at, connect)

    async def read(self, work: Callable[[], T]) -> T:
        """What `work` finds in files. Raises `OSError` or `TimeoutError`."""
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await self._done_by_worker(work)

    def stop(self) -> None:
        """No handshake gets any further."""
        self._handshakes.stop()
        self._workers.stop()

    async def _addresses(self, bridge: Bridge, ends_at: float) -> list[str]:
        """The addresses that a remote has at this moment, as many of them as are tried."""
        host = bridge.place.host
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        try:
            async with asyncio.timeout_at(ends_at):
                found = await self._names.addresses(bridge.name, host)
        except TimeoutError as error:
            raise OSError(f"{host}: whoever resolves names did not answer in time") from error
        return found[:DIALLED_ADDRESSES_MAXIMUM]

    async def _done_by_worker(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T | OSError] = asyncio.get_running_loop().create_future()

        def attempt() -> T | OSError:
            try:
                return work()
            except OSError as error:
                return error
            except (ConfigurationError, ValueError) as error:
                return OSError(str(error))

        self._workers.run(attempt, partial(_settle, done))
        found = await done
        if isinstance(found, OSError):
            raise found
        return found

    def _stack(
        self, bridge: Bridge, place: Place, context: SSLContext | None, opener: Opener
    ) -> asyncio.BufferedProtocol:
        """The layers of a new connection, from the top."""
        buffer, counts = self._connections.read_buffer, self._counts
        connection = self._connections.make(place.transport, opener)
        top: Upper = connection
        if place.transport in ("ws", "wss"):
            where = show_address(place.host, place.port)
            address = parse_uri(f"{place.transport}://{where}{place.path}")
            top = WebSocketLinkLayer(top, address, self._frame_bytes, buffer, counts)
        if context is not None:
            name = bridge.tls.server_name or place.host
            handshakes = self._handshakes
            top = TlsLinkLayer(top, connection, context, handshakes, buffer, counts, name)
        return top


def _settle(done: "asyncio.Future[T]", result: T) -> None:
    # Nobody waits any more if it took too long.
    if not done.done():
        done.set_result(result)


async def _reach(
    addresses: list[str],
    port: int,
    ends_at: float,
    connect: Callable[[str, int], Awaitable[object]],
) -> None:
    """Connects to the first of a remote's addresses that answers; each has its share of the
    time."""
    loop = asyncio.get_running_loop()
    refusals = []
    for tried, host in enumerate(addresses):
        share_s = (ends_at - loop.time()) / (len(addresses) - tried)
        try:
            async with asyncio.timeout(share_s):
                await connect(host, port)
                return
        except TimeoutError:
            reason = "no answer in time"
        except OSError as error:
            # What asyncio says in place of the system names the address once more.
            reason = os.strerror(error.errno) if error.errno else str(error)
        refusals.append(f"{show_address(host, port)}: {reason}")
    raise OSError("; ".join(refusals))
