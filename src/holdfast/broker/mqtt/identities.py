"""Deliveries that tell which message each is, for the sessions that have asked for it.

Owns: what is told, and that a connection is told it. Never: remembers who has asked; that is the
session's record.

Flow: admission, SUBSCRIBE -> here -> outboxes.
"""

from typing import Any

from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.stages import KernelStages
from holdfast.kernel import MessageIdentity
from holdfast.protocols.mqtt.identity import IDENTITY, asks_for_identity


class Identities:
    """Has the outboxes tell which message each is."""

    def __init__(self, kernel: KernelStages, sessions: Sessions) -> None:
        self._outboxes = kernel.outboxes
        self._sessions = sessions
        self._identity = MessageIdentity(IDENTITY, f"{kernel.log.epoch()}-")

    def admit(self, attached: Attached) -> None:
        """A session has come back to a connection, and is told if it was."""
        if attached.session.identified:
            self._outboxes.identify(attached.connection, self._identity)

    def subscribed(self, attached: Attached, properties: dict[str, Any], now_us: int) -> None:
        """A SUBSCRIBE has come with these properties; from now on its session is told, if they ask
        for that."""
        asked = asks_for_identity(properties)
        if asked is not None and asked != attached.session.identified:
            self._sessions.identify(attached, now_us, identified=asked)
            self._outboxes.identify(attached.connection, self._identity if asked else None)
