"""How connections end, and what the peer and its session are told.

Owns: the order: the session goes to rest first, then the handle is freed, then the last words and
the socket's end. An MQTT 5 peer is told why; older versions know no way to say it.
"""

import logging
from typing import Final

from holdfast.broker.counts import Counts, Event
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name
from holdfast.protocols.mqtt.will import Ending

log = logging.getLogger(__name__)
DISCONNECTED: Final = FrequentEvent(log, "client disconnected")
TAKEN_OVER: Final = FrequentEvent(log, "session taken over")


class Closing:
    """Ends connections."""

    def __init__(self, connections: Connections, sessions: Sessions, counts: Counts) -> None:
        self._connections = connections
        self._sessions = sessions
        self._counts = counts

    def gone(self, connection: Connection, now_us: int) -> None:
        """The peer has closed without a word, or is out of reach."""
        self.end(connection, Ending.ABNORMAL, now_us)

    def silent(self, connection: Connection, now_us: int) -> None:
        """Nothing has come from it for one and a half times its Keep Alive [MQTT-3.1.2-22]."""
        self.expel(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, now_us)

    def end(
        self,
        connection: Connection,
        ending: Ending,
        now_us: int,
        reason: str = "connection_lost",
    ) -> None:
        """The peer has gone, or has sent DISCONNECT; there is nothing to tell it."""
        self._note(connection, reason, now_us)
        self._rest(connection, ending, now_us, reason)
        self._connections.close(connection)

    def expel(
        self, connection: Connection, reason_code: int, now_us: int, reason: str = ""
    ) -> None:
        """We end it: a fault, or silence. `reason` says more to people."""
        self._counts.add(Event.CONNECTIONS_ENDED, reason_code)
        self._note(connection, reason_name(reason_code), now_us)
        words = self._last_words(connection, reason_code, reason)
        self._rest(connection, Ending.ABNORMAL, now_us, reason or reason_name(reason_code))
        self._connections.close(connection, words)

    def shut_down(self, connection: Connection, now_us: int) -> None:
        """The broker ends, and with it the connection [MQTT 5 section 4.13.1]."""
        reason_code = ReasonCode.SERVER_SHUTTING_DOWN
        self._counts.add(Event.CONNECTIONS_ENDED, reason_code)
        words = self._last_words(connection, reason_code, "")
        self._rest(connection, Ending.SHUT_DOWN, now_us, reason_name(reason_code))
        self._connections.close(connection, words)

    def refused(self, handle: int, why: str, times: int, now_us: int) -> None:
        """The log had no room for so many messages of it. MQTT 5 says so in PUBACK or PUBREC; older
        versions have no way to say it, and an acknowledgement would be a lie [MQTT-4.3.2-2 of
        3.1.1], so they are closed. So is a connection with another broker, which would drop what is
        refused: it is told nothing, and sends it again on the next connection. Only of what would
        find no place then either it is told."""
        self._counts.add(Event.PUBLISHES_REFUSED, ReasonCode.QUOTA_EXCEEDED, times)
        connection = self._connections.get(handle)
        if connection is None:
            return
        has_to_end = connection.protocol_version < 5
        if connection.opener is not None and why == "NoRoom":
            connection.opener.not_taken(times)
            has_to_end = True
        if has_to_end:
            self.expel(connection, ReasonCode.QUOTA_EXCEEDED, now_us)

    def contradicted(self, handle: int, now_us: int) -> None:
        """It sent an acknowledgement that does not belong to the exchange of its packet identifier
        (MQTT 5 section 4.3): what it has received nobody can tell any more [MQTT-4.13.1-1]."""
        connection = self._connections.get(handle)
        if connection is not None:
            reason = "an acknowledgement of another kind than its packet identifier awaits"
            self.expel(connection, ReasonCode.PROTOCOL_ERROR, now_us, reason)

    def denied(self, handle: int, count: int) -> None:
        """It published to topics that it may not publish to. It is told in the acknowledgement, or
        not at all, and stays connected: a wrong rule must not cut off whoever it concerns."""
        connection, attached = self._connections.get(handle), self._sessions.of(handle)
        # Once for each connection: who publishes on without the right must not fill the log.
        if connection is None or attached is None or connection.was_denied:
            return
        connection.was_denied = True
        fields = {"client_identifier": attached.session.client_identifier, "messages": count}
        log.warning("publish denied", extra={"fields": fields})

    def taken_over(self, displaced: Attached, now_us: int) -> None:
        """Its session has just passed to another connection [MQTT-3.1.4-3]."""
        self._counts.add(Event.SESSIONS_TAKEN_OVER)
        connection = self._connections.get(displaced.connection)
        if connection is not None:
            if TAKEN_OVER.is_due(now_us):
                client_identifier = displaced.session.client_identifier
                TAKEN_OVER.write({"client_identifier": client_identifier, "peer": connection.peer})
            words = _last_words(displaced, connection, ReasonCode.SESSION_TAKEN_OVER, "")
            self._connections.close(connection, words)

    def _note(self, connection: Connection, reason: str, now_us: int) -> None:
        attached = self._sessions.of(connection.handle)
        if connection.opener is not None:
            # Whoever opened it says what becomes of it.
            return
        if attached is None:
            # Nobody has said who it is: of interest by its number only.
            self._counts.add(Event.CONNECTIONS_ENDED_BEFORE_CONNECT)
        elif DISCONNECTED.is_due(now_us):
            fields = {
                "client_identifier": attached.session.client_identifier,
                "peer": connection.peer,
                "reason": reason,
                "connected_s": (now_us - connection.opened_at_us) // 1_000_000,
            }
            DISCONNECTED.write(fields)

    def _rest(self, connection: Connection, ending: Ending, now_us: int, reason: str) -> None:
        attached = self._sessions.of(connection.handle)
        if attached is not None:
            self._sessions.close(attached, ending, now_us)
        elif connection.opener is not None:
            connection.opener.ended(connection, reason, now_us)

    def _last_words(self, connection: Connection, reason_code: int, reason: str) -> bytes:
        attached = self._sessions.of(connection.handle)
        if attached is not None:
            return _last_words(attached, connection, reason_code, reason)
        if connection.opener is not None:
            return connection.opener.last_words(connection, reason_code)
        return b""


def _last_words(attached: Attached, connection: Connection, reason_code: int, reason: str) -> bytes:
    # Before CONNACK a server may send nothing else [MQTT-3.14.0-1], so who has not got one is just
    # cut off.
    if connection.protocol_version < 5 or connection.phase is not Phase.ACCEPTED:
        return b""
    terms = attached.opening.terms
    # What passes the client's Maximum Packet Size is left out [MQTT-3.14.2-3] [MQTT-3.1.2-24].
    said = [{"reason_string": reason}] if reason and terms.wants_reasons else []
    for properties in (*said, {}):
        fields = {"reason_code": reason_code, "properties": properties}
        words = encode_packet("disconnect", fields, protocol_version=5)
        if len(words) <= terms.maximum_packet_size_bytes:
            return words
    return b""
