"""Control packets: each kind to whoever decides about it, and the answer back.

Owns: what happens to a control packet. Never: sees PUBLISH, an acknowledgement or PINGREQ.

Invariant: the inbox holds a connection from a control packet until it is released here, so packets
of one client take effect in the order in which they were sent.

Flow: Inbox.decode -> here -> admission, sessions, answers.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from holdfast.broker.counts import Event
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.ground import Ground
from holdfast.broker.mqtt.admission import Admission
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.identities import Identities
from holdfast.broker.mqtt.permissions import Permissions
from holdfast.broker.mqtt.retained import Retained
from holdfast.broker.mqtt.session import environment_of
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscriptions import Subscriptions
from holdfast.broker.mqtt.system_topics import SystemTopics
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.broker.store.durability import Answers
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription, own_of, shared_of
from holdfast.kernel import Packet, encode_packet
from holdfast.protocols.mqtt.handshake import Offer, Refusal, plan_disconnect_expiry_s
from holdfast.protocols.mqtt.packets import parse_connect, parse_subscribe
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name
from holdfast.protocols.mqtt.subscribe import plan_subscribe, plan_unsubscribe
from holdfast.protocols.mqtt.will import Ending

log = logging.getLogger(__name__)

MIXED: Final = (
    "the name of a group ends with a hyphen and the name of an environment here, and this one with"
    " none that is known: environments that share a group take one another's messages"
)
"""Why a subscription to a group is refused that several environments could share."""


class ControlPackets:
    """Carries out what control packets ask for."""

    def __init__(
        self,
        ground: Ground,
        connections: Connections,
        admission: Admission,
        permissions: Permissions,
        closing: Closing,
        sessions: Sessions,
        groups: Groups,
        system_topics: SystemTopics,
    ) -> None:
        kernel = ground.kernel
        self.reconfigure(ground.config)
        self._connections = connections
        self._admission = admission
        self._permissions = permissions
        self._closing = closing
        self._sessions = sessions
        self._groups = groups
        self._identities = Identities(kernel, sessions)
        self._subscriptions = Subscriptions(kernel)
        self._retained = Retained(kernel)
        self._answers = Answers(kernel)
        self._system_topics = system_topics
        self._counts = ground.counts
        self._environments = ground.environments
        self._inbox = kernel.inbox
        self._log = kernel.log

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
            case "subscribe" if attached is not None:
                self._subscribe(attached, fields, now_us)
                self._release(connection)
            case "unsubscribe" if attached is not None:
                self._unsubscribe(attached, fields, now_us)
                self._release(connection)
            case "disconnect" if attached is not None:
                self._disconnect(connection, attached, fields, now_us)
            case "fault":
                self._fault(connection, fields, now_us)
            case _:
                # A second CONNECT [MQTT-3.1.0-2], AUTH without a method, or a server's packet.
                self._closing.expel(connection, ReasonCode.PROTOCOL_ERROR, now_us)

    def _release(self, connection: Connection) -> None:
        # Its packet may have ended it.
        if connection.phase is Phase.ACCEPTED:
            self._inbox.release(connection.handle)

    def _subscribe(self, attached: Attached, fields: dict[str, Any], now_us: int) -> None:
        version = attached.opening.protocol_version
        queue = attached.queue
        assert queue is not None, "the inbox holds a connection until it is attached"
        outcome = plan_subscribe(
            parse_subscribe(fields),
            attached.subscriptions,
            offset=self._log.end_offset(),
            protocol_version=version,
            is_allowed=self._permissions.may_subscribe(attached),
            is_mixed=self._environments.is_refused,
            has_room=lambda name, others: self._groups.has_room(
                name, attached.session.party, others
            ),
        )
        # Before the subscriptions: SUBACK waits for those, and so for both.
        self._identities.subscribed(attached, fields["properties"], now_us)
        position = self._sessions.resubscribe(attached, outcome.subscriptions, now_us)
        own = own_of(outcome.granted)
        self._subscriptions.add(queue, attached.connection, attached.session.party, own)
        answer = {
            "packet_identifier": fields["packet_identifier"],
            "reason_codes": list(outcome.reason_codes),
            "properties": self._reasons(attached, outcome.reason_codes),
        }
        system_topics = self._system_topics.retained(
            outcome.retained,
            protocol_version=version,
            packet_bytes=attached.opening.maximum_packet_size_bytes,
        )
        if len(own) < len(outcome.granted):
            self._note_groups(attached, outcome.granted)
        self._note_refused(attached, fields["subscriptions"], outcome.reason_codes)
        if self._answer("suback", attached, answer, position, now_us, system_topics):
            self._retained.send(queue, outcome.retained)

    def _note_groups(self, attached: Attached, granted: Iterable[Subscription]) -> None:
        """Who uses a group first, and that a group could be shared by several environments."""
        session = attached.session
        for item in shared_of(tuple(granted)):
            group = item.topic_filter
            self._environments.use([group], environment_of(self._environments, session))
            if self._environments.warns and self._environments.is_mixed(group):
                self._counts.add(Event.GROUPS_WITHOUT_ENVIRONMENT)
                told = {"group": group, "client_identifier": session.client_identifier}
                log.warning("group without an environment in its name", extra={"fields": told})

    @staticmethod
    def _reasons(attached: Attached, reason_codes: Iterable[int]) -> dict[str, Any]:
        """The properties of a SUBACK: what its reason codes cannot say."""
        opening = attached.opening
        is_mixed = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR in reason_codes
        return {"reason_string": MIXED} if is_mixed and opening.wants_reasons else {}

    def _note_refused(
        self, attached: Attached, asked: Iterable[dict[str, Any]], reason_codes: Iterable[int]
    ) -> None:
        for subscription, reason_code in zip(asked, reason_codes, strict=True):
            if reason_code >= ReasonCode.UNSPECIFIED_ERROR:
                self._counts.add(Event.SUBSCRIPTIONS_REFUSED, reason_code)
                told = {
                    "client_identifier": attached.session.client_identifier,
                    "topic_filter": subscription["topic_filter"],
                    "reason": reason_name(reason_code),
                }
                log.info("subscription refused", extra={"fields": told})

    def _unsubscribe(self, attached: Attached, fields: dict[str, Any], now_us: int) -> None:
        queue = attached.queue
        assert queue is not None, "the inbox holds a connection until it is attached"
        outcome = plan_unsubscribe(
            fields["topic_filters"], attached.subscriptions, offset=self._log.end_offset()
        )
        self._subscriptions.remove(queue, outcome.removed)
        position = self._sessions.resubscribe(attached, outcome.subscriptions, now_us)
        answer = {
            "packet_identifier": fields["packet_identifier"],
            "reason_codes": list(outcome.reason_codes),
            "properties": {},
        }
        self._answer("unsuback", attached, answer, position, now_us)

    def _answer(
        self,
        kind: str,
        attached: Attached,
        fields: dict[str, Any],
        position: int | None,
        now_us: int,
        following: bytes = b"",
    ) -> bool:
        """Answers, and sends what follows. False if the client takes no packet that large
        [MQTT-3.1.2-24]: it could not go on without the answer, so its connection has ended."""
        opening = attached.opening
        data = encode_packet(kind, fields, protocol_version=opening.protocol_version)
        if fields["properties"] and len(data) > opening.maximum_packet_size_bytes:
            # Without its reason it says what it has to [MQTT-3.9.2-1].
            bare = fields | {"properties": {}}
            data = encode_packet(kind, bare, protocol_version=opening.protocol_version)
        if len(data) <= opening.maximum_packet_size_bytes:
            self._answers.answer(attached.connection, data + following, position)
            return True
        connection = self._connections.get(attached.connection)
        assert connection is not None, "its packet was just taken"
        self._closing.expel(connection, ReasonCode.PACKET_TOO_LARGE, now_us)
        return False

    def _disconnect(
        self, connection: Connection, attached: Attached, fields: dict[str, Any], now_us: int
    ) -> None:
        requested_s = fields["properties"].get("session_expiry_interval")
        expiry_s = plan_disconnect_expiry_s(attached.opening, self._offer, requested_s)
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
