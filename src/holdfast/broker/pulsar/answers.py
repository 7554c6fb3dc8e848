"""What Pulsar clients are answered, at once or when the disk has it.

Owns: that each refusal is a line in the log and counted. Never: decides about one.
"""

import logging
from collections.abc import Mapping
from typing import Final

from holdfast.broker.counts import Event
from holdfast.broker.ground import Ground
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.sockets.connection import Connection
from holdfast.protocols.pulsar.commands import write_command
from holdfast.protocols.pulsar.fields import Command
from holdfast.protocols.pulsar.refusals import REFUSALS, Refusal, refuse

log = logging.getLogger(__name__)
REFUSED: Final = FrequentEvent(log, "request of a Pulsar client refused")


class Answers:
    """Answers requests."""

    def __init__(self, ground: Ground) -> None:
        self._deliveries = ground.kernel.deliveries
        self._outboxes = ground.kernel.pulsar_outboxes
        self._counts = ground.counts

    def send(self, handle: int, command: Command) -> None:
        """Sends it now."""
        self._outboxes.write(handle, write_command(command))

    def hold(self, handle: int, command: Command, position: int = 0) -> None:
        """Sends it once the log is durable up to `position`, and behind all that was held before:
        what is said of a consumer does not overtake the answer that has made it."""
        self._deliveries.hold(handle, write_command(command), position)

    def refuse(
        self, connection: Connection, command: Command, refusal: Refusal, now_us: int
    ) -> None:
        """Tells that something is not done, and why."""
        self.note(connection, command, refusal, now_us)
        self.send(connection.handle, refuse(command, refusal))

    def note(
        self,
        connection: Connection,
        command: Command,
        refusal: Refusal,
        now_us: int,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """It is about to be told that."""
        self._counts.add(Event.PULSAR_REQUESTS_REFUSED, refusal)
        if REFUSED.is_due(now_us):
            named = {
                name: getattr(command, name)
                for name in ("topic", "subscription")
                if hasattr(command, name)
            }
            _write(connection, type(command).__name__, refusal, {**named, **(more or {})})

    def note_entries(
        self, connection: Connection, refusal: Refusal, times: int, now_us: int
    ) -> None:
        """It is told that of so many entries; the kernel tells it."""
        self._counts.add(Event.PULSAR_REQUESTS_REFUSED, refusal, times)
        if REFUSED.is_due(now_us):
            _write(connection, "Send", refusal, {"times": times})


def _write(
    connection: Connection, request: str, refusal: Refusal, more: Mapping[str, object]
) -> None:
    fields = {
        "peer": connection.peer,
        "request": request,
        "reason": refusal.value,
        "error": REFUSALS[refusal].error.wire_name,
        **more,
    }
    REFUSED.write(fields)
