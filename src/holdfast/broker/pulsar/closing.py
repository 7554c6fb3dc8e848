"""How connections of Pulsar end.

Owns: the order: what the client had is free first, then its handle, then its socket ends. The
protocol has no word for why a broker ends a connection, so that the log alone says it.
"""

import logging
from enum import StrEnum
from typing import Final

from holdfast.broker.counts import Counts, Event
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Clients
from holdfast.broker.pulsar.consumers import Consumers
from holdfast.broker.pulsar.producers import Producers
from holdfast.broker.sockets.connection import Connection, Connections
from holdfast.broker.stages import KernelStages
from holdfast.protocols.pulsar.refusals import Refusal

log = logging.getLogger(__name__)
REFUSALS: Final = {
    "NoRoom": Refusal.NO_ROOM,
    "TooManyTopics": Refusal.NO_ROOM,
    "Damaged": Refusal.DAMAGED,
}
"""By what the kernel calls them."""
DISCONNECTED: Final = FrequentEvent(log, "Pulsar client disconnected")


class EndReason(StrEnum):
    """Why the broker ends a connection."""

    FAULT = "fault"
    SILENCE = "silence"
    STOPPING = "stopping"
    NO_LONGER_ALLOWED = "no_longer_allowed"


class PulsarClosing:
    """Ends connections."""

    def __init__(
        self,
        kernel: KernelStages,
        connections: Connections,
        clients: Clients,
        producers: Producers,
        consumers: Consumers,
        answers: Answers,
        counts: Counts,
    ) -> None:
        self._deliveries = kernel.deliveries
        self._connections = connections
        self._clients = clients
        self._producers = producers
        self._consumers = consumers
        self._answers = answers
        self._counts = counts

    def gone(self, connection: Connection, now_us: int) -> None:
        """The peer has closed, or is out of reach."""
        self._end(connection, "connection_lost", "", now_us)

    def expel(
        self, connection: Connection, reason: EndReason, now_us: int, detail: str = ""
    ) -> None:
        """The broker ends it; `detail` says more to people."""
        self._counts.add(Event.PULSAR_CONNECTIONS_ENDED, reason)
        self._end(connection, reason.value, detail, now_us)

    def silent(self, connection: Connection, now_us: int) -> None:
        """Nothing has come from it for too long."""
        self.expel(connection, EndReason.SILENCE, now_us)

    def shut_down(self, connection: Connection, now_us: int) -> None:
        """The broker ends, and with it the connection; clients come back by themselves."""
        self.expel(connection, EndReason.STOPPING, now_us)

    def refused(self, handle: int, why: str, times: int, now_us: int) -> None:
        """So many entries of it were not taken. It is told so, and goes on or comes again by
        itself."""
        connection = self._connections.get(handle)
        if connection is not None:
            self._answers.note_entries(connection, REFUSALS[why], times, now_us)

    def _end(self, connection: Connection, reason: str, detail: str, now_us: int) -> None:
        client = self._clients.remove(connection.handle)
        if client is None:
            self._counts.add(Event.CONNECTIONS_ENDED_BEFORE_CONNECT)
        else:
            self._producers.end_all(client)
            self._consumers.end_all(client, now_us)
            self._deliveries.close(connection.handle)
        if DISCONNECTED.is_due(now_us):
            fields = {
                "peer": connection.peer,
                "client": "" if client is None else client.version,
                "reason": reason,
                **({"detail": detail} if detail else {}),
                "connected_s": (now_us - connection.opened_at_us) // 1_000_000,
            }
            DISCONNECTED.write(fields)
        self._connections.close(connection)
