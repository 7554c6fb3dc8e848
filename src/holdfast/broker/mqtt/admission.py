"""CONNECT: from the packet to an attached session, or to a refusal.

Owns: connections between CONNECT and CONNACK. Never: decides (protocols.mqtt.handshake and access
do).

Invariants:
1. CONNACK is the first thing a client is sent [MQTT-3.2.0-1]: until it leaves the connection has no
   outbox and its inbox is held, whatever the client has sent after CONNECT.
2. CONNACK of a session that wrote control records leaves when they are durable (store.durability).
3. Nothing of a session is touched before its client has shown who it is. Until then the connection
   counts as pending and has CONNECT_TIMEOUT_S.
4. A session belongs to the user who opened it; nobody else resumes it or takes it over.
5. What has to be counted before CONNACK, because a queue at rest has a limit, is counted in pieces:
   whoever comes back to much waits longer, and nobody else does.

Flow: control packets -> here -> access -> sessions -> CONNACK.
"""

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from holdfast.broker.access.access import Access, Denial, Identity, Login
from holdfast.broker.access.denial_reason import DenialReason
from holdfast.broker.access.rates import Rate
from holdfast.broker.chores import Chores
from holdfast.broker.counts import Event
from holdfast.broker.delivery.queues import Prepared
from holdfast.broker.ground import Ground
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.mqtt.attached import Opened
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.identities import Identities
from holdfast.broker.mqtt.permissions import Permissions
from holdfast.broker.mqtt.session import Session, environment_of
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscription_records import NOTHING_RECALLED, Recalled
from holdfast.broker.mqtt.system_topics import is_system_topic
from holdfast.broker.mqtt.writing import ALL_THERE_IS, messages_per_write
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.broker.store.durability import Waiting
from holdfast.core.config import Config
from holdfast.core.units import SECOND_US
from holdfast.kernel import encode_packet, key_slot
from holdfast.protocols.mqtt.handshake import (
    ASSIGNED_ENTROPY_BYTES,
    Handshake,
    Offer,
    Opening,
    Refusal,
    accepted,
    is_told,
    refused,
)
from holdfast.protocols.mqtt.packets import Connect
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name

log = logging.getLogger(__name__)
CONNECTED: Final = FrequentEvent(log, "client connected")
REFUSED: Final = FrequentEvent(log, "client refused")

NOT_AUTHORIZED: Final = Refusal(ReasonCode.NOT_AUTHORIZED)


REASON_CODES: Final = {
    DenialReason.WRONG_CREDENTIALS: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    DenialReason.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    DenialReason.BANNED: ReasonCode.BANNED,
    DenialReason.BUSY: ReasonCode.SERVER_BUSY,
}
"""What CONNACK says for each."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    connection: Connection
    opened: Opened


class _Who(NamedTuple):
    """Who is refused, as far as it is known: what is no user's name may be a password in the wrong
    place, and is not told."""

    client_identifier: str = ""
    user_name: str | None = None


NOBODY_YET: Final = _Who()


class Admission:
    """Takes clients in."""

    def __init__(
        self,
        ground: Ground,
        access: Access,
        permissions: Permissions,
        connections: Connections,
        closing: Closing,
        sessions: Sessions,
        chores: Chores,
    ) -> None:
        self._access = access
        self._permissions = permissions
        self._soon = ground.schedule.soon
        self._entropy = ground.world.entropy
        self._connections = connections
        self._closing = closing
        self._sessions = sessions
        self._identities = Identities(ground.kernel, sessions)
        self._chores = chores
        self._now_us = ground.world.now_us
        self._inbox = ground.kernel.inbox
        self._outboxes = ground.kernel.outboxes
        self._counts = ground.counts
        self._environments = ground.environments
        self.waiting: Waiting[_Arrival] = Waiting()
        """Their CONNACK waits for the disk."""
        self.decided: deque[tuple[Connection, Opening, Identity | Denial]] = deque()
        """Logins whose password has been checked since the last turn."""
        self._denied: deque[tuple[int, Connection, Refusal, _Who]] = deque()
        """Logins that have failed, with the time when they are told; all of them are pending."""
        self.reconfigure(ground.config)

    def reconfigure(self, config: Config) -> None:
        """Grants this to clients that connect from now on; all are written to by it."""
        self._config = config
        self._handshake = Handshake(Offer.of(config))
        self._identities.reconfigure(config)
        self._rate = Rate(config.connections_per_second)
        self._delay_us = config.login_delay_s * SECOND_US
        for attached in self._sessions.all_attached():
            messages = messages_per_write(config, attached.session)
            self._outboxes.limit_writes(attached.connection, messages)

    def connect(self, connection: Connection, connect: Connect, now_us: int) -> None:
        """Takes a CONNECT: whoever sends it shows who it is, and the session is opened."""
        version = connection.protocol_version = connect.protocol_version
        if not self._rate.take(now_us):
            self.refuse(connection, Refusal(ReasonCode.CONNECTION_RATE_EXCEEDED), version, now_us)
            return
        nameless = connect.client_identifier == ""
        entropy = self._entropy(ASSIGNED_ENTROPY_BYTES) if nameless else b""
        opening = self._handshake.plan(connect, entropy)
        if isinstance(opening, Refusal):
            self.refuse(connection, opening, version, now_us)
            return
        opening.environment = self._environments.said(connect.properties)
        identity = self._access.unasked(opening.client_identifier, connect.user_name)
        if identity is None:
            self._authenticate(connection, connect, opening, now_us)
        else:
            self._authenticated(connection, opening, identity, now_us)

    def _authenticate(
        self, connection: Connection, connect: Connect, opening: Opening, now_us: int
    ) -> None:
        login = Login(
            client_identifier=opening.client_identifier,
            user_name=connect.user_name,
            password=connect.password,
            peer=connection.peer,
            certificate_name=connection.certificate_name,
        )

        def later(decided: Identity | Denial) -> None:
            self.decided.append((connection, opening, decided))
            self._soon()

        self._connections.enter(connection, Phase.AUTHENTICATING)
        identity = self._access.authenticate(login, later)
        if identity is not None:
            self._authenticated(connection, opening, identity, now_us)

    def decide(self, now_us: int) -> None:
        """Goes on with those whose password has been checked since the last turn."""
        while self.decided:
            connection, opening, identity = self.decided.popleft()
            # Its time may have run out, or the broker be about to end.
            if connection.phase is not Phase.AUTHENTICATING:
                continue
            if isinstance(identity, Identity):
                # It may have been changed in the meantime.
                renewed = self._access.renewed(identity, opening.client_identifier)
                identity = renewed or Denial(reason=DenialReason.NOT_AUTHORIZED)
            self._authenticated(connection, opening, identity, now_us)

    def sweep(self, now_us: int) -> None:
        """Tells those who have waited long enough that their login has failed."""
        while self._denied and self._denied[0][0] <= now_us:
            _, connection, refusal, who = self._denied.popleft()
            if connection.phase is Phase.AUTHENTICATING:
                self.refuse(connection, refusal, connection.protocol_version, now_us, who)

    def _authenticated(
        self, connection: Connection, opening: Opening, identity: Identity | Denial, now_us: int
    ) -> None:
        if isinstance(identity, Denial):
            refusal = Refusal(REASON_CODES[identity.reason])
            who = _Who(opening.client_identifier, identity.user_name)
            if identity.slowly and self._delay_us:
                self._denied.append((now_us + self._delay_us, connection, refusal, who))
            else:
                self.refuse(connection, refusal, connection.protocol_version, now_us, who)
            return
        allowed = self._allowed(opening, identity, now_us)
        if isinstance(allowed, Refusal):
            who = _Who(opening.client_identifier, identity.user_name)
            self.refuse(connection, allowed, connection.protocol_version, now_us, who)
        else:
            self._open(connection, allowed, identity, now_us)

    def _allowed(self, opening: Opening, identity: Identity, now_us: int) -> Opening | Refusal:
        """The opening as this identity may have it."""
        if not self._sessions.has_room_for(opening):
            self._counts.add(Event.SESSIONS_REFUSED)
            return Refusal(ReasonCode.QUOTA_EXCEEDED)
        is_recorded = opening.terms.expiry_s != 0 or opening.will is not None
        is_behind = is_recorded and not self._sessions.keep_up()
        if is_behind or not self._chores.has_room():
            return Refusal(ReasonCode.CONNECTION_RATE_EXCEEDED)
        client_identifier, will = opening.client_identifier, opening.will
        if will is not None and is_system_topic(will.topic_name):
            return NOT_AUTHORIZED
        if not self._access.restricts:
            return opening
        if will is not None and not self._access.may_publish(
            identity, client_identifier, will.topic_name
        ):
            return NOT_AUTHORIZED
        owner = self._sessions.owner(client_identifier, now_us)
        if owner in (None, identity.user_name):
            return opening
        if self._access.is_known(owner):
            return NOT_AUTHORIZED
        # Nobody can come back for what its owner has left.
        return replace(opening, terms=replace(opening.terms, clean_start=True))

    def _open(
        self, connection: Connection, opening: Opening, identity: Identity, now_us: int
    ) -> None:
        if not self._sessions.is_on_record(opening.client_identifier):
            self._opened(connection, opening, identity, NOTHING_RECALLED, now_us)
            return
        self._connections.enter(connection, Phase.ADMITTING)

        def recalled(found: Recalled) -> None:
            # It may have gone in the meantime.
            if connection.phase is Phase.ADMITTING:
                self._opened(connection, opening, identity, found, self._now_us())

        self._chores.start(self._sessions.recall(opening, now_us), recalled)

    def _opened(
        self,
        connection: Connection,
        opening: Opening,
        identity: Identity,
        recalled: Recalled,
        now_us: int,
    ) -> None:
        opened = self._sessions.open(opening, identity, connection.handle, recalled, now_us)
        if opened.displaced is not None:
            self._closing.taken_over(opened.displaced, now_us)
        arrival = _Arrival(connection, opened)
        if opened.position is None:
            self._prepare(arrival, now_us)
        else:
            self._connections.enter(connection, Phase.ADMITTING)
            self.waiting.add(opened.position, arrival)

    def refuse(
        self,
        connection: Connection,
        refusal: Refusal,
        protocol_version: int,
        now_us: int,
        who: _Who = NOBODY_YET,
    ) -> None:
        """Answers a CONNECT that is not accepted, if that can be said, and closes
        [MQTT-3.1.4-2]."""
        self._counts.add(Event.CONNECTIONS_REFUSED, refusal.reason_code)
        if REFUSED.is_due(now_us):
            fields = {
                "client_identifier": who.client_identifier,
                "user_name": who.user_name or "",
                "peer": connection.peer,
                "transport": connection.transport_name,
                "protocol_version": protocol_version,
                "reason": reason_name(refusal.reason_code),
            }
            REFUSED.write(fields)
        data = b""
        if is_told(refusal, protocol_version):
            data = encode_packet("connack", refused(refusal), protocol_version=protocol_version)
        self._connections.close(connection, data)

    def durable(self, durable_position: int, now_us: int) -> None:
        """The log is durable up to here: who waited for that gets CONNACK."""
        for arrival in self.waiting.take(durable_position):
            if self._is_there(arrival):
                self._prepare(arrival, now_us)

    def _is_there(self, arrival: _Arrival) -> bool:
        """False if it has gone, or has been taken over, in the meantime."""
        return self._sessions.of(arrival.connection.handle) is arrival.opened.attached

    def _prepare(self, arrival: _Arrival, now_us: int) -> None:
        if not arrival.opened.attached.held:
            self._admit(arrival, None, now_us)
            return
        self._connections.enter(arrival.connection, Phase.ADMITTING)

        def prepared(outcome: Prepared | None) -> None:
            if self._is_there(arrival):
                self._admit(arrival, outcome, self._now_us())

        self._chores.start(self._sessions.prepare(arrival.opened.attached, now_us), prepared)

    def _admit(self, arrival: _Arrival, prepared: Prepared | None, now_us: int) -> None:
        attached = arrival.opened.attached
        opening, terms = attached.opening, attached.opening.terms
        offer, version = terms.offer, terms.protocol_version
        handle = arrival.connection.handle
        party = attached.session.party
        self._connections.enter(arrival.connection, Phase.ACCEPTED)
        self._outboxes.open(
            handle,
            protocol_version=version,
            maximum_packet_size_bytes=terms.maximum_packet_size_bytes,
            topic_alias_maximum=terms.topic_alias_maximum,
            party=party,
        )
        messages = messages_per_write(self._config, attached.session)
        if messages != ALL_THERE_IS:
            self._outboxes.limit_writes(handle, messages)
        self._identities.admit(attached)
        answer = accepted(opening, session_present=arrival.opened.session_present)
        self._outboxes.write(handle, answer)
        unreleased = self._sessions.attach(attached, prepared, now_us)
        self._inbox.accept(
            handle,
            party=party,
            protocol_version=version,
            keep_alive_s=terms.keep_alive_s,
            receive_maximum=offer.receive_maximum,
            maximum_packet_size_bytes=offer.maximum_packet_size_bytes,
            topic_alias_maximum=offer.topic_alias_maximum if version == 5 else 0,
            unreleased=unreleased,
            key_slot=key_slot(opening.client_identifier.encode()),
        )
        self._permissions.admit(attached, now_us)
        # What it has sent since then waits here until now.
        self._inbox.unread(handle, arrival.connection.opened_at_us, now_us)
        self._inbox.release(handle)
        self._counts.add(Event.CONNECTIONS_ACCEPTED)
        self._environments.learn(opening.environment)
        if groups := attached.held.shared:
            self._environments.use(groups, environment_of(self._environments, attached.session))
        self._warn_of(attached.session)
        if CONNECTED.is_due(now_us):
            _tell(arrival)

    def _warn_of(self, session: Session) -> None:
        """An APPLICATION client that is not delivered to as one is told of, whatever else."""
        fields = {"client_identifier": session.client_identifier}
        if session.unkept_application:
            self._counts.add(Event.APPLICATIONS_NOT_PERSISTENT)
            log.warning("APPLICATION client without a persistent session", extra={"fields": fields})
        elif session.nameless_application:
            self._counts.add(Event.APPLICATIONS_WITHOUT_QUEUE)
            log.warning("APPLICATION client without a queue of its own", extra={"fields": fields})


def _tell(arrival: _Arrival) -> None:
    connection, opening = arrival.connection, arrival.opened.attached.opening
    terms = opening.terms
    fields = {
        "client_identifier": opening.client_identifier,
        "user_name": arrival.opened.attached.identity.user_name or "",
        "peer": connection.peer,
        "transport": connection.transport_name,
        "protocol_version": terms.protocol_version,
        "session_present": arrival.opened.session_present,
        "clean_start": terms.clean_start,
        "keep_alive_s": terms.keep_alive_s,
        "client_type": arrival.opened.attached.session.client_type,
    }
    CONNECTED.write(fields)
