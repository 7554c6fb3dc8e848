"""Connections that are opened from here.

Owns: what stands between such a connection and its socket. Never: decides when one is opened, or
what is said on it.
"""

import asyncio

from holdfast.broker.sockets.connection import Connections, Opener
from holdfast.core.bridge import Place
from holdfast.core.limits import CONNECT_TIMEOUT_S


class Dialer:
    """Opens connections."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def dial(self, place: Place, opener: Opener) -> None:
        """Opens a connection for somebody, who is told when it can be written to. Raises `OSError`
        or `TimeoutError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.create_connection(
                lambda: self._connections.make(place.transport, opener), place.host, place.port
            )
