"""Control packets: each kind to whoever decides about it, and the answer back.

Owns: what happens to a control packet. Never: sees PUBLISH, an acknowledgement or PINGREQ.

Invariant: the inbox holds a connection from a control packet until whoever carries that out
releases it, so packets of one client take effect in the order in which they were sent.

Flow: Inbox.decode -> here -> admission, subscribe packets, sessions.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.broker.ground import Ground
from holdfast.broker.mqtt.admission import Admission
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscribe_packets import SubscribePackets
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.core.config import Config
from holdfast.kernel import Packet
from holdfast.protocols.mqtt.handshake import Offer, Refusal, plan_disconnect_expiry_s
from holdfast.protocols.mqtt.packets import parse_connect
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.mqtt.will import Ending


class ControlPackets:
    """Carries out what control packets ask for."""

    def __init__(
        self,
        ground: Ground,
        connections: Connections,
        admission: Admission,
        subscribe_packets: SubscribePackets,
        closing: Closing,
        sessions: Sessions,
    ) -> None:
        self.reconfigure(ground.config)
        self._connections = connections
        self._admission = admission
        self._subscribe_packets = subscribe_packets
        self._closing = closing
        self._sessions = sessions

    def reconfigure(self, config: Config) -> None:
        """Judges what clients ask for by this from now on."""
        self._offer = Offer.of(config)

    def take(self, packets: Iterable[tuple[int, Packet]], now_us: int) -> None:
        """Handles what this turn decoded."""
        for handle, packet in packets:
            connection = self._connections.get(handle)
            # An earlier packet of this turn may have ended it: a takeover, for one.
            if connection is not None:
                self._take_one(connection, packet, now_us)

    def _take_one(self, connection: Connection, packet: Packet, now_us: int) -> None:
        if connection.opener is not None:
            reason_code = connection.opener.take(connection, packet, now_us)
            if reason_code is not None:
                self._closing.expel(connection, reason_code, now_us)
            return
        attached = self._sessions.of(connection.handle)
        fields = packet.fields
        match packet.kind:
            case "connect" if attached is None:
                self._admission.connect(connection, parse_connect(fields), now_us)
            case "subscribe" | "unsubscribe" if attached is not None:
                self._subscribe_packets.take(attached, packet)
            case "disconnect" if attached is not None:
                self._disconnect(connection, attached, fields, now_us)
            case "fault":
                self._fault(connection, fields, now_us)
            case _:
                # A second CONNECT [MQTT-3.1.0-2], AUTH without a method, or a server's packet.
                self._closing.expel(connection, ReasonCode.PROTOCOL_ERROR, now_us)

    def _disconnect(
        self, connection: Connection, attached: Attached, fields: dict[str, Any], now_us: int
    ) -> None:
        requested_s = fields["properties"].get("session_expiry_interval")
        expiry_s = plan_disconnect_expiry_s(attached.opening.terms, self._offer, requested_s)
        if isinstance(expiry_s, Refusal):
            self._closing.expel(connection, expiry_s.reason_code, now_us)
            return
        self._sessions.keep_for(attached, expiry_s)
        # Anything but a normal end leaves the Will standing [MQTT-3.14.4-3].
        normal = fields["reason_code"] == ReasonCode.SUCCESS
        reason = "client_disconnected" if normal else f"client_{fields['reason_code']:#04x}"
        ending = Ending.NORMAL if normal else Ending.ABNORMAL
        self._closing.end(connection, ending, now_us, reason)

    def _fault(self, connection: Connection, fields: dict[str, Any], now_us: int) -> None:
        reason_code = fields["reason_code"]
        if connection.phase is not Phase.NEW:
            self._closing.expel(connection, reason_code, now_us, fields["reason"])
        elif fields["protocol_version"]:
            version = fields["protocol_version"]
            self._admission.refuse(connection, Refusal(reason_code), version, now_us)
        else:
            # Bytes that are no CONNECT of any version: there is no language to answer in.
            self._closing.expel(connection, reason_code, now_us)
