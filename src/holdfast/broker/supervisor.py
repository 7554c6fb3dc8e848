"""What a supervisor is told: that we serve, reload, stop, and are alive.

Owns: systemd's notification protocol (sd_notify(3)): one datagram of `NAME=value` lines to the
socket that `NOTIFY_SOCKET` names. Never: fails because nobody listens; without the variable it does
nothing.
"""

import asyncio
import logging
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

WATCHDOG_SHARE = 3
"""Signs of life in one watchdog interval: one that comes late is not taken for death."""


class Supervisor:
    """Whoever started us and watches over us, if somebody does."""

    def __init__(self, environment: Mapping[str, str], process_identifier: int) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        # A name in the abstract namespace is written with @ and meant with a zero byte.
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._watchdog_s = _watchdog_s(environment, process_identifier)
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """We serve; signs of life follow, if they are asked for, for as long as the loop turns."""
        self._tell("READY=1")
        if self._watchdog_s:
            self._alive()

    def reloading(self, monotonic_us: int) -> None:
        """The settings are being read again; `ready` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={monotonic_us}")

    def stopping(self) -> None:
        """We stop; the manager's own timeout counts from now on."""
        self._tell("STOPPING=1")

    def close(self) -> None:
        """Gives no more signs of life."""
        if self._timer is not None:
            self._timer.cancel()

    def _alive(self) -> None:
        self.close()
        self._tell("WATCHDOG=1")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._watchdog_s / WATCHDOG_SHARE, self._alive)

    def _tell(self, lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            fields = {"reason": error.strerror or error}
            log.warning("the supervisor cannot be told", extra={"fields": fields})


def _watchdog_s(environment: Mapping[str, str], process_identifier: int) -> float:
    """The interval in which a sign of life is expected of us; 0 if none is."""
    for_whom = environment.get("WATCHDOG_PID", "")
    interval_us = environment.get("WATCHDOG_USEC", "")
    if not interval_us.isdigit() or for_whom not in ("", str(process_identifier)):
        return 0.0
    return int(interval_us) / 1_000_000
