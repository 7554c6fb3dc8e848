"""Ports that are promised to a process before it runs."""

import socket
import weakref


class HeldPort:
    """A port that the system gives to nobody else, for as long as this object lives.

    It is bound and nobody listens on it, so connections are refused; a process that asks for this
    very port can listen on it, as every server does that sets SO_REUSEADDR.
    """

    def __init__(self, number: int = 0) -> None:
        """This one, or one that is free."""
        held = socket.socket()
        weakref.finalize(self, held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", number))
        self.number = int(held.getsockname()[1])
