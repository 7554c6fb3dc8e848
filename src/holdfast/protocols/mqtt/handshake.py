"""CONNECT in, a decision out: refused with a reason code, or accepted on these terms.

Owns: client identifiers, the limits both sides get, and what CONNACK says. Never: knows whether a
session exists; who carries the decision out tells `connack` that.

Flow: packets -> here -> session, CONNACK.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

from holdfast.core.config import Config
from holdfast.core.limits import CLIENT_IDENTIFIER_BYTES_MAXIMUM
from holdfast.kernel import encode_packet, is_valid_topic_name
from holdfast.protocols.mqtt.packets import Connect, Will
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.mqtt.session_expiry import (
    SESSION_EXPIRY_NEVER,
    SessionPolicy,
    plan_expiry_s,
)

RECEIVE_MAXIMUM_DEFAULT: Final = 65_535
"""What a side may have in flight where it was told nothing [MQTT 5 section 3.1.2.11.3]."""
PACKET_SIZE_BYTES_MAXIMUM: Final = 268_435_460
"""The largest packet the protocol can express: five bytes of header and 268 435 455 more."""
REFUSAL_BYTES: Final = 5
"""A CONNACK that says no more than its reason code."""
CONNACK_BYTES_MAXIMUM: Final = 128
"""More than any CONNACK that accepts: whoever takes as much need not be asked."""
TERMS_REMEMBERED_MAXIMUM: Final = 256
"""Different things that clients ask for, whose answers are kept ready; some 500 bytes each."""
TOLD_BEFORE_MQTT_5: Final = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.BANNED,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    }
)
"""What a return code of 3.1.1 can say. A CONNECT that is no CONNECT has none, and is not answered
(3.1.1: [MQTT-3.1.4-1], [MQTT-3.2.2-6])."""
ASSIGNED_ENTROPY_BYTES: Final = 16
"""As many random bytes as make two assigned identifiers the same only in theory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What this server grants every client."""

    receive_maximum: int
    maximum_packet_size_bytes: int
    topic_alias_maximum: int
    keep_alive_maximum_s: int
    sessions: SessionPolicy

    @classmethod
    def of(cls, config: Config) -> Self:
        """What these settings grant."""
        return cls(
            receive_maximum=config.receive_maximum,
            maximum_packet_size_bytes=config.maximum_packet_size_bytes,
            topic_alias_maximum=config.topic_alias_maximum,
            keep_alive_maximum_s=config.keep_alive_maximum_s,
            sessions=SessionPolicy(
                expiry_maximum_s=config.session_expiry_maximum_s,
                ttl_s=config.session_ttl_s,
                strict_expiry=config.session_strict_expiry,
            ),
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """CONNECT is answered with this, and the connection is closed."""

    reason_code: int
    packet_size_bytes_maximum: int = PACKET_SIZE_BYTES_MAXIMUM
    """What the client takes; it is told nothing if that is too little."""


@dataclass(slots=True, kw_only=True)
class Terms:
    """What is agreed on with a client, whoever it is: the same for most of a fleet."""

    offer: Offer
    protocol_version: int
    clean_start: bool
    requested_expiry_s: int | None
    expiry_s: int | None
    """How long the session is kept after the connection; 0 not at all, `None` for ever."""
    requested_keep_alive_s: int
    keep_alive_s: int
    receive_maximum: int
    """How many messages may be in flight to the client. The next two are its limits too."""
    maximum_packet_size_bytes: int
    topic_alias_maximum: int
    wants_reasons: bool
    """False: no Reason String, in no packet [MQTT-3.1.2-29]."""
    answers: tuple[bytes, bytes] = (b"", b"")
    """The CONNACK that accepts a client that has named itself: without a session, and with one."""


@dataclass(slots=True, kw_only=True)
class Opening:
    """CONNECT is accepted on these terms."""

    client_identifier: str
    identifier_assigned: bool
    terms: Terms
    will: Will | None
    environment: str = ""
    """Which environment the client says that it is of."""


class Handshake:
    """Decides about CONNECT by one offer."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._terms: dict[tuple[int | None, ...], Terms] = {}
        """Of those who asked for the same before, TERMS_REMEMBERED_MAXIMUM at most."""

    def plan(self, connect: Connect, entropy: bytes) -> Opening | Refusal:
        """What a CONNECT leads to; `entropy` makes the identifier of a client that has none."""
        if "authentication_method" in connect.properties:
            # No method is offered, so none can be continued [MQTT 5 section 4.12].
            return Refusal(ReasonCode.BAD_AUTHENTICATION_METHOD)
        if not _is_acceptable_identifier(connect):
            return Refusal(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        if connect.will is not None and not is_valid_topic_name(connect.will.topic_name.encode()):
            return Refusal(ReasonCode.TOPIC_NAME_INVALID)
        terms = self._terms_for(connect)
        opening = Opening(
            client_identifier=connect.client_identifier or f"holdfast-{entropy.hex()}",
            identifier_assigned=connect.client_identifier == "",
            terms=terms,
            will=connect.will,
        )
        if _takes_connack(opening):
            return opening
        return Refusal(ReasonCode.PACKET_TOO_LARGE, terms.maximum_packet_size_bytes)

    def _terms_for(self, connect: Connect) -> Terms:
        said = connect.properties.get
        asked = (
            connect.protocol_version,
            connect.clean_start,
            connect.keep_alive_s,
            said("session_expiry_interval"),
            said("receive_maximum"),
            said("maximum_packet_size"),
            said("topic_alias_maximum"),
            said("request_problem_information"),
        )
        terms = self._terms.get(asked)
        if terms is None:
            if len(self._terms) >= TERMS_REMEMBERED_MAXIMUM:
                self._terms.clear()
            terms = self._terms[asked] = plan_terms(connect, self._offer)
        return terms


def plan_terms(connect: Connect, offer: Offer) -> Terms:
    """What is agreed on with whoever asks for this."""
    properties, version = connect.properties, connect.protocol_version
    requested_s = properties.get("session_expiry_interval")
    terms = Terms(
        offer=offer,
        protocol_version=version,
        clean_start=connect.clean_start,
        requested_expiry_s=requested_s,
        expiry_s=plan_expiry_s(
            offer.sessions,
            protocol_version=version,
            clean_start=connect.clean_start,
            requested_s=requested_s,
        ),
        requested_keep_alive_s=connect.keep_alive_s,
        keep_alive_s=_keep_alive_s(connect, offer),
        receive_maximum=properties.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT),
        maximum_packet_size_bytes=properties.get("maximum_packet_size", PACKET_SIZE_BYTES_MAXIMUM),
        topic_alias_maximum=properties.get("topic_alias_maximum", 0),
        wants_reasons=properties.get("request_problem_information", 1) == 1,
    )
    terms.answers = (
        _encode_connack(terms, None, session_present=False),
        _encode_connack(terms, None, session_present=True),
    )
    return terms


def accepted(opening: Opening, *, session_present: bool) -> bytes:
    """The CONNACK that accepts `opening`."""
    if not opening.identifier_assigned:
        return opening.terms.answers[session_present]
    name = opening.client_identifier
    return _encode_connack(opening.terms, name, session_present=session_present)


def connack(terms: Terms, assigned: str | None, *, session_present: bool) -> dict[str, Any]:
    """The fields of the CONNACK that accepts these terms, with the identifier that was `assigned`;
    says nothing that is the default anyway."""
    offer, properties = terms.offer, dict[str, Any]()
    if assigned is not None:
        properties["assigned_client_identifier"] = assigned
    expiry_s = SESSION_EXPIRY_NEVER if terms.expiry_s is None else terms.expiry_s
    if expiry_s != (terms.requested_expiry_s or 0):
        properties["session_expiry_interval"] = min(expiry_s, SESSION_EXPIRY_NEVER)
    if terms.keep_alive_s != terms.requested_keep_alive_s:
        properties["server_keep_alive"] = terms.keep_alive_s
    if offer.receive_maximum != RECEIVE_MAXIMUM_DEFAULT:
        properties["receive_maximum"] = offer.receive_maximum
    if offer.maximum_packet_size_bytes < PACKET_SIZE_BYTES_MAXIMUM:
        properties["maximum_packet_size"] = offer.maximum_packet_size_bytes
    if offer.topic_alias_maximum:
        properties["topic_alias_maximum"] = offer.topic_alias_maximum
    return {
        "session_present": session_present,
        "reason_code": ReasonCode.SUCCESS,
        # Older versions have no properties; the encoder leaves them out.
        "properties": properties,
    }


def refused(refusal: Refusal) -> dict[str, Any]:
    """The fields of the CONNACK that refuses."""
    return {"session_present": False, "reason_code": refusal.reason_code, "properties": {}}


def is_told(refusal: Refusal, protocol_version: int) -> bool:
    """False: the version has no words for it, or the client no room; it is closed without any."""
    if protocol_version < 5:
        return refusal.reason_code in TOLD_BEFORE_MQTT_5
    return refusal.packet_size_bytes_maximum >= REFUSAL_BYTES


def plan_disconnect_expiry_s(
    terms: Terms, offer: Offer, requested_s: int | None
) -> int | Refusal | None:
    """How long the session is kept after a DISCONNECT that asks for this, or a protocol error."""
    if requested_s is None:
        return terms.expiry_s
    if requested_s and not terms.requested_expiry_s:
        return Refusal(ReasonCode.PROTOCOL_ERROR)  # [MQTT-3.1.2-23], section 3.14.2.2.2
    return min(requested_s, offer.sessions.expiry_maximum_s)


def _is_acceptable_identifier(connect: Connect) -> bool:
    size_bytes = len(connect.client_identifier.encode())
    if size_bytes:
        return size_bytes <= CLIENT_IDENTIFIER_BYTES_MAXIMUM
    if connect.protocol_version == 3:
        return False  # MQTT 3.1 asks for 1 to 23 characters.
    # A session that nobody could come back to [MQTT-3.1.3-8]; MQTT 5 tells the client its name.
    return connect.protocol_version == 5 or connect.clean_start


def _encode_connack(terms: Terms, assigned: str | None, *, session_present: bool) -> bytes:
    fields = connack(terms, assigned, session_present=session_present)
    return encode_packet("connack", fields, protocol_version=terms.protocol_version)


def _takes_connack(opening: Opening) -> bool:
    # [MQTT-3.1.2-24]; and without what CONNACK says the client would break limits it cannot know.
    takes_bytes = opening.terms.maximum_packet_size_bytes
    if takes_bytes >= CONNACK_BYTES_MAXIMUM:
        return True
    return len(accepted(opening, session_present=False)) <= takes_bytes


def _keep_alive_s(connect: Connect, offer: Offer) -> int:
    # Only MQTT 5 can be told another Keep Alive than it asked for [MQTT-3.1.2-21]; 0 stays off.
    if connect.protocol_version < 5:
        return connect.keep_alive_s
    return min(connect.keep_alive_s, offer.keep_alive_maximum_s)
