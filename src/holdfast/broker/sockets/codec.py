"""What a protocol's bytes go through in the kernel, on their way in and out.

Owns: what a socket needs of it, the same for every protocol. Never: knows what is said.
"""

from dataclasses import dataclass
from typing import Protocol


class Decoding(Protocol):
    """What has arrived and is not decoded yet, by connection."""

    def open(self, connection: int) -> None:
        """A new connection, of which nothing is known."""

    def close(self, connection: int) -> None:
        """Forgets the connection."""

    def feed(self, connection: int, count: int, now_us: int) -> int:
        """Takes so many bytes from the read buffer; returns how many wait of the connection."""

    def unread(self, connection: int, from_us: int, to_us: int) -> None:
        """Between these times nothing of it was read, which was our doing."""

    def next_at_us(self) -> int | None:
        """When there is something to decode although nothing more comes; `None` if nothing waits
        for the limit of all."""


class Encoding(Protocol):
    """What waits to be sent, by connection."""

    def close(self, connection: int) -> None:
        """Forgets the connection."""

    def set_writable(self, connection: int, writable: bool) -> None:
        """Its socket takes bytes, or does not."""

    def waiting_bytes(self, connection: int) -> int:
        """Bytes that wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One protocol's."""

    protocol: str
    """By the name that people know it by."""
    inbox: Decoding
    outboxes: Encoding
    frame_bytes_maximum: int
    """The most that a peer may send as one piece."""
