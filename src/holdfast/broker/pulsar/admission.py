"""CONNECT: from the command to a client that is let in, or to a refusal.

Owns: connections between CONNECT and CONNECTED. Never: decides (protocols.pulsar.handshake and
access do).

Invariant: CONNECTED is the first thing a client is sent. Until it leaves the connection has no
outbox and its inbox is held, counts as pending and has CONNECT_TIMEOUT_S.

Flow: commands -> here -> access -> CONNECTED.
"""

import logging
from collections import deque
from typing import Final

from holdfast import __version__
from holdfast.broker.access.access import Access, Denial, Identity, Login
from holdfast.broker.access.denial_reason import DenialReason
from holdfast.broker.access.rates import Rate
from holdfast.broker.counts import Event
from holdfast.broker.ground import Ground
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, Clients
from holdfast.broker.pulsar.keep_alive import KeepAlive
from holdfast.broker.pulsar.rights import NAMELESS, Rights
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.core.config import Config
from holdfast.core.units import SECOND_US
from holdfast.protocols.pulsar.commands import write_command
from holdfast.protocols.pulsar.fields import Connect
from holdfast.protocols.pulsar.handshake import Offer, Opening, connected, plan_handshake
from holdfast.protocols.pulsar.refusals import Refusal, refuse

log = logging.getLogger(__name__)
CONNECTED: Final = FrequentEvent(log, "Pulsar client connected")

REFUSALS: Final = {
    DenialReason.WRONG_CREDENTIALS: Refusal.AUTHENTICATION_FAILED,
    DenialReason.NOT_AUTHORIZED: Refusal.AUTHENTICATION_FAILED,
    DenialReason.BANNED: Refusal.BANNED,
    DenialReason.BUSY: Refusal.LOGIN_BUSY,
}
"""What the client is told for each."""


class PulsarAdmission:
    """Takes clients in."""

    def __init__(
        self,
        ground: Ground,
        access: Access,
        connections: Connections,
        clients: Clients,
        keep_alive: KeepAlive,
        rights: Rights,
        answers: Answers,
    ) -> None:
        self._access = access
        self._connections = connections
        self._clients = clients
        self._keep_alive = keep_alive
        self._rights = rights
        self._answers = answers
        self._soon = ground.schedule.soon
        self._counts = ground.counts
        self._inbox = ground.kernel.pulsar_inbox
        self._outboxes = ground.kernel.pulsar_outboxes
        self._deliveries = ground.kernel.deliveries
        self.decided: deque[tuple[Connection, Connect, Opening, Identity | Denial]] = deque()
        """Logins whose password has been checked since the last turn."""
        self._denied: deque[tuple[int, Connection, Connect, Refusal]] = deque()
        """Logins that have failed, with the time when they are told; all of them are pending."""
        self.reconfigure(ground.config)

    def reconfigure(self, config: Config) -> None:
        """Takes in clients by this from now on."""
        self._offer = Offer(
            server_version=f"Holdfast {__version__}",
            max_message_size_bytes=config.pulsar_message_bytes,
        )
        self._rate = Rate(config.connections_per_second)
        self._delay_us = config.login_delay_s * SECOND_US

    def connect(self, connection: Connection, command: Connect, now_us: int) -> None:
        """Takes a CONNECT: whoever sends it shows who it is."""
        opening = plan_handshake(command)
        if not self._rate.take(now_us):
            opening = Refusal.LOGIN_BUSY
        if isinstance(opening, Refusal):
            self._refuse(connection, command, opening, now_us)
            return
        accepted = opening
        connection.protocol_version = accepted.protocol_version
        self._connections.enter(connection, Phase.AUTHENTICATING)
        login = Login(
            client_identifier=NAMELESS,
            user_name=accepted.user_name,
            password=accepted.password,
            peer=connection.peer,
            certificate_name=connection.certificate_name,
        )

        def later(decided: Identity | Denial) -> None:
            self.decided.append((connection, command, accepted, decided))
            self._soon()

        identity = self._access.authenticate(login, later)
        if identity is not None:
            self._authenticated(connection, command, accepted, identity, now_us)

    def decide(self, now_us: int) -> None:
        """Goes on with those whose password has been checked since the last turn."""
        while self.decided:
            connection, command, opening, identity = self.decided.popleft()
            # Its time may have run out, or the broker be about to end.
            if connection.phase is not Phase.AUTHENTICATING:
                continue
            self._authenticated(connection, command, opening, identity, now_us)

    def sweep(self, now_us: int) -> None:
        """Tells those who have waited long enough that their login has failed."""
        while self._denied and self._denied[0][0] <= now_us:
            _, connection, command, refusal = self._denied.popleft()
            if connection.phase is Phase.AUTHENTICATING:
                self._refuse(connection, command, refusal, now_us)

    def _authenticated(
        self,
        connection: Connection,
        command: Connect,
        opening: Opening,
        identity: Identity | Denial,
        now_us: int,
    ) -> None:
        if isinstance(identity, Identity):
            # It may have been changed in the meantime, or be for certain client identifiers alone.
            renewed = self._access.renewed(identity, NAMELESS)
            identity = renewed or Denial(reason=DenialReason.NOT_AUTHORIZED)
        if isinstance(identity, Identity):
            self._admit(connection, opening, identity, now_us)
        elif identity.slowly and self._delay_us:
            due_at_us = now_us + self._delay_us
            self._denied.append((due_at_us, connection, command, REFUSALS[identity.reason]))
        else:
            self._refuse(connection, command, REFUSALS[identity.reason], now_us)

    def _admit(
        self, connection: Connection, opening: Opening, identity: Identity, now_us: int
    ) -> None:
        client = Client(connection=connection, identity=identity, version=opening.client_version)
        handle = connection.handle
        self._connections.enter(connection, Phase.ACCEPTED)
        # It takes as much as it may send; what is larger is a loss and does not end its connection.
        self._outboxes.open(handle, frame_bytes_maximum=self._offer.frame_bytes_maximum)
        self._deliveries.open(handle)
        self._answers.send(handle, connected(opening, self._offer))
        self._inbox.accept(
            handle,
            frame_bytes_maximum=self._offer.frame_bytes_maximum,
            silence_us=self._keep_alive.silence_us,
        )
        self._clients.add(client)
        self._rights.limit(client)
        self._keep_alive.begin(client, now_us)
        # What it has sent since then waits here until now.
        self._inbox.unread(handle, connection.opened_at_us, now_us)
        self._inbox.release(handle)
        self._counts.add(Event.CONNECTIONS_ACCEPTED)
        if CONNECTED.is_due(now_us):
            fields = {
                "client": client.version,
                "user_name": identity.user_name or "",
                "peer": connection.peer,
                "transport": connection.transport_name,
                "protocol_version": opening.protocol_version,
            }
            CONNECTED.write(fields)

    def _refuse(
        self, connection: Connection, command: Connect, refusal: Refusal, now_us: int
    ) -> None:
        self._answers.note(connection, command, refusal, now_us)
        self._connections.close(connection, write_command(refuse(command, refusal)))
