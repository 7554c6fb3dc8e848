"""Connections that end, and what follows where something of one was not taken, each as the protocol
has it that is spoken there.

Owns: the choice. Never: ends one; the protocols' own closings do.
"""

from typing import Literal, Protocol

from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.pulsar.closing import PulsarClosing
from holdfast.broker.sockets.connection import Connection, Connections

NotTaken = Literal["NoRoom", "TooManyTopics", "Damaged"]
"""Why, as the kernel says it."""


class Ends(Protocol):
    """What each protocol can do about its connections."""

    def gone(self, connection: Connection, now_us: int) -> None:
        """The peer has closed, or is out of reach."""

    def silent(self, connection: Connection, now_us: int) -> None:
        """Nothing has come from it for too long."""

    def shut_down(self, connection: Connection, now_us: int) -> None:
        """The broker ends, and with it the connection."""

    def refused(self, handle: int, why: NotTaken, times: int, now_us: int) -> None:
        """So many messages or entries of a connection were not taken."""


class Endings:
    """Ends connections of any protocol."""

    def __init__(self, connections: Connections, mqtt: Closing, pulsar: PulsarClosing) -> None:
        self._connections = connections
        self._by_protocol: dict[str, Ends] = {"mqtt": mqtt, "pulsar": pulsar}

    def of(self, connection: Connection) -> Ends:
        """Who ends this one."""
        return self._by_protocol[connection.codec.protocol]

    def refused(self, handle: int, why: NotTaken, times: int, now_us: int) -> None:
        """So many messages or entries of a connection were not taken; what the broker hands in
        itself has none, and is a message of MQTT."""
        connection = self._connections.get(handle)
        protocol = "mqtt" if connection is None else connection.codec.protocol
        self._by_protocol[protocol].refused(handle, why, times, now_us)
