"""SUBSCRIBE and UNSUBSCRIBE, in pieces: one packet may have ten thousand filters.

Owns: packets that are carried out in part, and their answers. Never: decides what is granted.

Invariants:
1. A turn carries out `FILTERS_PER_TURN_MAXIMUM` filters, however many clients ask for more, and
   each of them has its turn.
2. A packet is answered once all of it is in force and, of a durable session, on record. Whoever is
   gone before has no answer; what was carried out by then stays (`Sessions.close`).
3. The inbox holds the connection until then, so there is one packet of each.
"""

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.broker.counts import Event
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.ground import Ground
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.identities import Identities
from holdfast.broker.mqtt.permissions import Permissions
from holdfast.broker.mqtt.retained import Retained
from holdfast.broker.mqtt.session import environment_of
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscriptions import Subscriptions
from holdfast.broker.mqtt.system_topics import SystemTopics
from holdfast.broker.sockets.connection import Connections, Phase
from holdfast.broker.store.durability import Answers
from holdfast.core.limits import FILTERS_PER_TURN_MAXIMUM, RETAINED_LOOKED_UP_PER_TURN_MAXIMUM
from holdfast.core.subscription import Subscription, own_of, shared_of
from holdfast.kernel import Packet, encode_packet
from holdfast.protocols.mqtt.packets import SubscriptionRequest, parse_subscribe
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name
from holdfast.protocols.mqtt.subscribe import plan_subscribe, plan_unsubscribe

log = logging.getLogger(__name__)

MIXED: Final = (
    "the name of a group ends with a hyphen and the name of an environment here, and this one with"
    " none that is known: environments that share a group take one another's messages"
)
"""Why a subscription to a group is refused that several environments could share."""

FILTERS: Final = {"subscribe": "subscriptions", "unsubscribe": "topic_filters"}
ANSWERS: Final = {"subscribe": "suback", "unsubscribe": "unsuback"}


@dataclass(slots=True)
class Asked:
    """A packet, and how far it is carried out."""

    attached: Attached
    packet: Packet
    reason_codes: list[int] = field(default_factory=list)
    """One for each filter that has been decided about."""
    following: bytes = b""
    """What goes out behind the answer."""

    def take(self, filters_maximum: int) -> list[Any]:
        """The next filters, each as it was decoded."""
        first = len(self.reason_codes)
        filters: list[Any] = self.packet.fields[FILTERS[self.packet.kind]]
        return filters[first : first + filters_maximum]

    def is_done(self) -> bool:
        """True if nothing is left of it."""
        return len(self.reason_codes) == len(self.packet.fields[FILTERS[self.packet.kind]])


class SubscribePackets:
    """Carries out what they ask for."""

    def __init__(
        self,
        ground: Ground,
        connections: Connections,
        permissions: Permissions,
        closing: Closing,
        sessions: Sessions,
        groups: Groups,
        system_topics: SystemTopics,
    ) -> None:
        kernel = ground.kernel
        self._connections = connections
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
        self._look_ups = 0
        """Filters whose retained messages may still be looked up in this turn."""
        self.asked: deque[Asked] = deque()
        """Those that are not answered yet."""

    def take(self, attached: Attached, packet: Packet) -> None:
        """It is carried out as soon as there is room for it."""
        self.asked.append(Asked(attached, packet))

    def carry_out(self, now_us: int) -> None:
        """As much of them as one turn does."""
        room = FILTERS_PER_TURN_MAXIMUM
        self._look_ups = RETAINED_LOOKED_UP_PER_TURN_MAXIMUM
        while self.asked and room > 0:
            asked = self.asked.popleft()
            # A takeover or a fault may have ended its connection.
            if self._sessions.of(asked.attached.connection) is not asked.attached:
                continue
            filters = asked.take(room)
            room -= len(filters)
            if asked.packet.kind == "subscribe":
                self._subscribe(asked, filters, now_us)
            else:
                self._unsubscribe(asked, filters, now_us)
            if asked.is_done():
                self._answer(asked, now_us)
                self._release(asked.attached.connection)
            else:
                self.asked.append(asked)

    def _subscribe(self, asked: Asked, filters: list[dict[str, Any]], now_us: int) -> None:
        attached, fields = asked.attached, asked.packet.fields
        version, queue = attached.opening.terms.protocol_version, attached.queue
        assert queue is not None, "the inbox holds a connection until it is attached"
        requests = parse_subscribe({**fields, "subscriptions": filters})
        outcome = plan_subscribe(
            requests,
            attached.held,
            offset=self._log.end_offset(),
            protocol_version=version,
            is_allowed=self._permissions.may_subscribe(attached),
            is_mixed=self._environments.is_refused,
            has_room=lambda name, others: self._groups.has_room(
                name, attached.session.party, others
            ),
        )
        goes_on = bool(asked.reason_codes)
        if not goes_on:
            # Before the subscriptions: SUBACK waits for those, and so for both.
            self._identities.subscribed(attached, fields["properties"], now_us)
        self._sessions.resubscribe(attached, outcome.held, now_us)
        own = own_of(outcome.granted)
        self._subscriptions.add(queue, attached.connection, attached.session.party, own)
        asked.reason_codes += outcome.reason_codes
        asked.following += self._system_topics.retained(
            outcome.retained,
            protocol_version=version,
            packet_bytes=attached.opening.terms.maximum_packet_size_bytes,
        )
        if len(own) < len(outcome.granted):
            self._note_groups(attached, outcome.granted)
        self._note_refused(attached, requests, outcome.reason_codes)
        # A packet that goes on has had its turns with others' look-ups.
        look_ups = 0 if goes_on else self._look_ups
        self._look_ups -= self._retained.send(queue, outcome.retained, look_ups)

    def _unsubscribe(self, asked: Asked, filters: list[str], now_us: int) -> None:
        attached = asked.attached
        assert attached.queue is not None, "the inbox holds a connection until it is attached"
        outcome = plan_unsubscribe(filters, attached.held, offset=self._log.end_offset())
        self._subscriptions.remove(attached.queue, outcome.removed)
        self._sessions.resubscribe(attached, outcome.held, now_us)
        asked.reason_codes += outcome.reason_codes

    def _answer(self, asked: Asked, now_us: int) -> None:
        """Answers, and sends what follows. A client that takes no packet that large
        [MQTT-3.1.2-24] could not go on without the answer: its connection ends."""
        attached = asked.attached
        terms, kind = attached.opening.terms, ANSWERS[asked.packet.kind]
        position = self._sessions.record(attached, now_us)
        fields = {
            "packet_identifier": asked.packet.fields["packet_identifier"],
            "reason_codes": asked.reason_codes,
            "properties": _reasons(attached, asked.reason_codes),
        }
        data = encode_packet(kind, fields, protocol_version=terms.protocol_version)
        if fields["properties"] and len(data) > terms.maximum_packet_size_bytes:
            # Without its reason it says what it has to [MQTT-3.9.2-1].
            bare = fields | {"properties": {}}
            data = encode_packet(kind, bare, protocol_version=terms.protocol_version)
        if len(data) <= terms.maximum_packet_size_bytes:
            self._answers.answer(attached.connection, data + asked.following, position)
            return
        connection = self._connections.get(attached.connection)
        assert connection is not None, "its session is attached to it"
        self._closing.expel(connection, ReasonCode.PACKET_TOO_LARGE, now_us)

    def _release(self, handle: int) -> None:
        connection = self._connections.get(handle)
        # Its answer may have ended it.
        if connection is not None and connection.phase is Phase.ACCEPTED:
            self._inbox.release(handle)

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

    def _note_refused(
        self,
        attached: Attached,
        asked: Iterable[SubscriptionRequest],
        reason_codes: Iterable[int],
    ) -> None:
        for request, reason_code in zip(asked, reason_codes, strict=True):
            if reason_code >= ReasonCode.UNSPECIFIED_ERROR:
                self._counts.add(Event.SUBSCRIPTIONS_REFUSED, reason_code)
                told = {
                    "client_identifier": attached.session.client_identifier,
                    "topic_filter": request.topic_filter,
                    "reason": reason_name(reason_code),
                }
                log.info("subscription refused", extra={"fields": told})


def _reasons(attached: Attached, reason_codes: Iterable[int]) -> dict[str, Any]:
    """The properties of a SUBACK: what its reason codes cannot say."""
    is_mixed = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR in reason_codes
    return {"reason_string": MIXED} if is_mixed and attached.opening.terms.wants_reasons else {}
