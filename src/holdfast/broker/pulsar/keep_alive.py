"""Is anybody there? Each client is asked at an interval, and ends that has said nothing for two.

Owns: when each is asked. Never: ends one (closing does), or hears an answer (the kernel does).
This is what frees the exclusive subscription of a host that is dead.
"""

from collections import deque
from typing import Final

from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, Clients
from holdfast.core.config import Config
from holdfast.core.units import SECOND_US
from holdfast.protocols.pulsar.fields import Ping

SILENT_INTERVALS: Final = 2
"""A client that was asked has a whole interval to answer."""


class KeepAlive:
    """Asks those who are connected."""

    def __init__(self, config: Config, clients: Clients, answers: Answers) -> None:
        self._clients = clients
        self._answers = answers
        self._due: deque[tuple[int, Client]] = deque()
        """Who is asked next, and when; all wait for the same time."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Clients that connect from now on may be silent as long; all are asked as often."""
        self._interval_us = config.pulsar_keep_alive_s * SECOND_US

    @property
    def silence_us(self) -> int:
        """As long may a client say nothing."""
        return SILENT_INTERVALS * self._interval_us

    def begin(self, client: Client, now_us: int) -> None:
        """It has connected."""
        self._due.append((now_us + self._interval_us, client))

    def sweep(self, now_us: int) -> None:
        """Asks those whose time has come."""
        while self._due and self._due[0][0] <= now_us:
            _, client = self._due.popleft()
            # The handle may be another's by now.
            if self._clients.of(client.handle) is client:
                self._answers.send(client.handle, Ping())
                self._due.append((now_us + self._interval_us, client))
