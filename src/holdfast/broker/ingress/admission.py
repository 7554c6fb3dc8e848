"""CONNECT: from the packet to an attached session, or to a refusal.

Owns: connections between CONNECT and CONNACK. Never: decides (protocols.mqtt.handshake does).

Invariants:
1. CONNACK is the first thing a client is sent [MQTT-3.2.0-1]: until it leaves the connection has no
   outbox and its inbox is held, whatever the client has sent after CONNECT.
2. CONNACK of a session that wrote control records leaves when they are durable (store.durability).

Flow: control packets -> here -> sessions -> CONNACK.
"""

import logging
from collections import Counter
from dataclasses import dataclass

from holdfast.broker.dispatch.sessions import Opened, Sessions
from holdfast.broker.ingress.closing import Closing
from holdfast.broker.ingress.connection import Connection, Connections, Phase
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.durability import Waiting
from holdfast.broker.world import World
from holdfast.core.config import Config
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.handshake import (
    ASSIGNED_ENTROPY_BYTES,
    Offer,
    Refusal,
    connack,
    is_told,
    plan_handshake,
    refused,
)
from holdfast.protocols.mqtt.packets import Connect
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Arrival:
    connection: Connection
    opened: Opened


class Admission:
    """Takes clients in."""

    def __init__(
        self,
        config: Config,
        world: World,
        kernel: KernelStages,
        connections: Connections,
        closing: Closing,
        sessions: Sessions,
        counts: Counter[str],
    ) -> None:
        self.reconfigure(config)
        self._entropy = world.entropy
        self._connections = connections
        self._closing = closing
        self._sessions = sessions
        self._inbox = kernel.inbox
        self._outboxes = kernel.outboxes
        self._counts = counts
        self._waiting: Waiting[_Arrival] = Waiting()

    def reconfigure(self, config: Config) -> None:
        """Grants this to clients that connect from now on."""
        self._offer = Offer.of(config)

    def connect(self, connection: Connection, connect: Connect, now_us: int) -> None:
        """Takes a CONNECT: the session is opened, and CONNACK follows when it may."""
        connection.protocol_version = connect.protocol_version
        decision = plan_handshake(connect, self._offer, self._entropy(ASSIGNED_ENTROPY_BYTES))
        if isinstance(decision, Refusal):
            self.refuse(connection, decision, connect.protocol_version)
            return
        if not self._sessions.has_room_for(decision):
            self._counts["sessions_refused"] += 1
            refusal = Refusal(ReasonCode.QUOTA_EXCEEDED)
            self.refuse(connection, refusal, connect.protocol_version)
            return
        self._connections.enter(connection, Phase.ADMITTING)
        opened = self._sessions.open(decision, connection.handle, now_us)
        if opened.displaced is not None:
            self._closing.taken_over(opened.displaced)
        arrival = _Arrival(connection, opened)
        if opened.position is None:
            self._admit(arrival, now_us)
        else:
            self._waiting.add(opened.position, arrival)

    def refuse(self, connection: Connection, refusal: Refusal, protocol_version: int) -> None:
        """Answers a CONNECT that is not accepted, if that can be said, and closes
        [MQTT-3.1.4-2]."""
        self._counts[f"connections_refused_{refusal.reason_code:#04x}"] += 1
        fields = {
            "peer": connection.peer,
            "transport": connection.transport_name,
            "protocol_version": protocol_version,
            "reason": reason_name(refusal.reason_code),
        }
        log.info("client refused", extra={"fields": fields})
        data = b""
        if is_told(refusal, protocol_version):
            data = encode_packet("connack", refused(refusal), protocol_version=protocol_version)
        self._connections.close(connection, data)

    def durable(self, durable_position: int, now_us: int) -> None:
        """The log is durable up to here: who waited for that gets CONNACK."""
        for arrival in self._waiting.take(durable_position):
            # It may have gone, or have been taken over, in the meantime.
            if self._sessions.of(arrival.connection.handle) is arrival.opened.attached:
                self._admit(arrival, now_us)

    def waits(self) -> bool:
        """True if a CONNACK waits for the disk."""
        return len(self._waiting) > 0

    def _admit(self, arrival: _Arrival, now_us: int) -> None:
        attached = arrival.opened.attached
        opening = attached.opening
        handle = arrival.connection.handle
        party = attached.session.party
        self._connections.enter(arrival.connection, Phase.ACCEPTED)
        self._outboxes.open(
            handle,
            protocol_version=opening.protocol_version,
            maximum_packet_size_bytes=opening.maximum_packet_size_bytes,
            topic_alias_maximum=opening.topic_alias_maximum,
            party=party,
        )
        fields = connack(opening, self._offer, session_present=arrival.opened.session_present)
        version = opening.protocol_version
        self._outboxes.write(handle, encode_packet("connack", fields, protocol_version=version))
        received = self._sessions.attach(attached, now_us)
        self._inbox.accept(
            handle,
            party=party,
            protocol_version=version,
            keep_alive_s=opening.keep_alive_s,
            receive_maximum=self._offer.receive_maximum,
            maximum_packet_size_bytes=self._offer.maximum_packet_size_bytes,
            topic_alias_maximum=self._offer.topic_alias_maximum if version == 5 else 0,
            received=received,
        )
        self._inbox.release(handle)
        self._counts["connections_accepted"] += 1
        if log.isEnabledFor(logging.INFO):
            _tell(arrival)


def _tell(arrival: _Arrival) -> None:
    connection, opening = arrival.connection, arrival.opened.attached.opening
    fields = {
        "client_identifier": opening.client_identifier,
        "peer": connection.peer,
        "transport": connection.transport_name,
        "protocol_version": opening.protocol_version,
        "session_present": arrival.opened.session_present,
        "clean_start": opening.clean_start,
        "keep_alive_s": opening.keep_alive_s,
    }
    log.info("client connected", extra={"fields": fields})
