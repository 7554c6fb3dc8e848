"""Signals: SIGTERM and SIGINT end the broker, SIGHUP has its settings read again.

Invariants:
1. The first SIGTERM or SIGINT asks for a clean stop. A second one ends the process at once, as the
   operating system does it: even where this thread waits for a disk that does not answer. Nothing
   acknowledged is lost; the next start recovers.
2. SIGHUP never ends the process, not even while it starts.
"""

import asyncio
import logging
import signal
from collections.abc import Callable

log = logging.getLogger(__name__)

ENDING = (signal.SIGTERM, signal.SIGINT)


def ignore_hangup() -> None:
    """Until the broker serves there is nothing to read again, and SIGHUP would end it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def listen_for_end(stop: Callable[[], None]) -> None:
    """Calls `stop` on the running loop's thread from now on."""
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        log.info("stopping", extra={"fields": {"signal": number.name}})
        for each in ENDING:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop()

    for number in ENDING:
        loop.add_signal_handler(number, end, number)


def listen_for_hangup(reload: Callable[[], None]) -> None:
    """Calls `reload` on the running loop's thread from now on."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
