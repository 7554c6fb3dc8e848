"""How many bytes the other end of a connection has taken, as the system knows it.

Owns: that question, whatever carries the connection. Never: says whether anybody has read them.
"""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from typing import Final, NamedTuple

BYTES_TAKEN_AT: Final = 120
"""Where `tcpi_bytes_acked` stands in Linux's `struct tcp_info` (since 4.1)."""
LONG_BYTES: Final = 8


class Taken(NamedTuple):
    """Bytes that were written to a connection."""

    taken: int
    """The other end's system has these."""
    left: int
    """These wait here."""


def taken(transport: asyncio.Transport) -> Taken:
    """How far a connection is. Nothing is taken where nobody knows."""
    told = transport.get_extra_info("taken")
    if told is None:
        opened = transport.get_extra_info("socket")
        told = (0, 0) if opened is None else taken_of(opened.fileno())
    taken_bytes, queued_bytes = told
    return Taken(taken_bytes, queued_bytes + transport.get_write_buffer_size())


def taken_of(descriptor: int) -> tuple[int, int]:
    """What the other end of a TCP socket has, and what the system here has left of what it was
    given; nothing of what is no such socket any more."""
    if descriptor < 0:
        return 0, 0
    try:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
    except OSError:
        return 0, 0
    try:
        told = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_TAKEN_AT + LONG_BYTES)
        left = fcntl.ioctl(opened, termios.TIOCOUTQ, bytes(struct.calcsize("i")))
    except OSError:
        return 0, 0
    finally:
        opened.detach()
    (queued,) = struct.unpack("i", left)
    # The opening counts as a byte.
    return max(int.from_bytes(told[BYTES_TAKEN_AT:], sys.byteorder) - 1, 0), queued
