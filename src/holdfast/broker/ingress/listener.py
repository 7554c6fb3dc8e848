"""Listening for MQTT over TCP.

Owns: the listening socket. Never: knows what comes of a connection; it makes them and lets go.
"""

import asyncio

from holdfast.broker.ingress.connection import Connections
from holdfast.core.errors import ListenError

BACKLOG_CONNECTIONS = 4_096
"""Connections that the operating system holds for us: a fleet that reconnects after an outage comes
all at once, and who is turned away here waits seconds before trying again."""


async def listen(connections: Connections, host: str, port: int) -> asyncio.Server:
    """Listens on `host` and `port`; 0 lets the operating system choose. Raises `ListenError`."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(connections.make, host, port, backlog=BACKLOG_CONNECTIONS)
    except OSError as error:
        raise refused(host, port, error) from error


def refused(host: str, port: int, error: OSError) -> ListenError:
    """Why an address cannot be listened on, in one sentence."""
    reason = error.strerror or str(error)
    return ListenError(f"cannot listen on {host}:{port}: {reason}")
