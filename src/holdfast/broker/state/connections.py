"""Connections as they are seen from outside."""

from dataclasses import dataclass

from holdfast.broker.sockets.connection import Connections


@dataclass(frozen=True, slots=True)
class ConnectionSeen:
    """One connection."""

    peer: str
    transport: str
    opened_at_us: int
    written_bytes: int
    """Written to its socket, and not taken by the peer."""
    kept_bytes: int
    """Waiting to be written."""


class ConnectionsState:
    """Looks at one connection at a time."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def of(self, handle: int) -> ConnectionSeen | None:
        """The connection with this handle, while it is there."""
        connection = self._connections.get(handle)
        if connection is None:
            return None
        return ConnectionSeen(
            peer=connection.peer,
            transport=connection.transport_name,
            opened_at_us=connection.opened_at_us,
            written_bytes=connection.transport.get_write_buffer_size(),
            kept_bytes=connection.codec.outboxes.waiting_bytes(handle),
        )
