"""Connections that end, each in the words of the protocol that is spoken on it.

Owns: the choice. Never: ends one; the protocols' own closings do.
"""

from typing import Protocol

from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.pulsar.closing import PulsarClosing
from holdfast.broker.sockets.connection import Connection


class Ends(Protocol):
    """What each protocol can do about its connections."""

    def gone(self, connection: Connection, now_us: int) -> None:
        """The peer has closed, or is out of reach."""

    def silent(self, connection: Connection, now_us: int) -> None:
        """Nothing has come from it for too long."""

    def shut_down(self, connection: Connection, now_us: int) -> None:
        """The broker ends, and with it the connection."""


class Endings:
    """Ends connections of any protocol."""

    def __init__(self, mqtt: Closing, pulsar: PulsarClosing) -> None:
        self._by_protocol: dict[str, Ends] = {"mqtt": mqtt, "pulsar": pulsar}

    def of(self, connection: Connection) -> Ends:
        """Who ends this one."""
        return self._by_protocol[connection.codec.protocol]
