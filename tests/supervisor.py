"""Whom a broker tells of its steps, in systemd's place."""

import socket

TOLD_WITHIN_S = 120.0
BYTES_MAXIMUM = 1_024


class Supervisor:
    """Hears the brokers that find its address in NOTIFY_SOCKET."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # The system chooses a name in the abstract namespace; a path could be too long for it.
        self._socket.bind("")
        self._socket.settimeout(TOLD_WITHIN_S)

    @property
    def address(self) -> str:
        """As the variable has it: with @ where the name has a zero byte."""
        name: bytes = self._socket.getsockname()
        return f"@{name[1:].decode()}"

    def next_step(self) -> str:
        """What it is told next."""
        return self._socket.recv(BYTES_MAXIMUM).decode()

    def wait_reloaded(self) -> None:
        """Waits until the settings have been read again once more, or were refused."""
        self.wait_told("RELOADING=1")
        self.wait_told("READY=1")

    def wait_told(self, step: str) -> None:
        """Waits for a step, over others that come before."""
        while step not in self.next_step().splitlines():
            pass

    def close(self) -> None:
        """Hears no more."""
        self._socket.close()
