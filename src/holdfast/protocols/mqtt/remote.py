"""The client's side of a connection: what CONNECT says, and what CONNACK allows.

Owns: what a client may do with a server that has answered so. Never: knows who the client is, or
connects.

Flow: settings -> CONNECT; CONNACK -> here -> granted or refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.protocols.mqtt.handshake import PACKET_SIZE_BYTES_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT
from holdfast.protocols.mqtt.reason_code import ReasonCode, reason_name

QOS_MAXIMUM: Final = 2
LASTING_REFUSALS: Final = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)
"""What another attempt a second later will not change."""
SERVERS_REASONS: Final = frozenset(
    {ReasonCode.KEEP_ALIVE_TIMEOUT, ReasonCode.SESSION_TAKEN_OVER, ReasonCode.NOT_AUTHORIZED}
)
"""Which of the reasons for which connections are ended only a server may give (table 3-13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The server has accepted; this is what it takes."""

    session_present: bool
    receive_maximum: int
    maximum_qos: int
    retain_available: bool
    maximum_packet_size_bytes: int
    topic_alias_maximum: int
    keep_alive_s: int
    client_identifier: str | None
    """Another one than it was told, which it has given."""
    session_expiry_s: int | None
    """Another one than it was asked for."""
    wildcards_available: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The server has not accepted."""

    reason_code: int
    reason: str

    @property
    def lasts(self) -> bool:
        """True if the next attempt will have the same answer, unless somebody changes something."""
        return self.reason_code in LASTING_REFUSALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client asks for in CONNECT."""

    client_identifier: str
    protocol_version: int
    clean_start: bool
    keep_alive_s: int
    session_expiry_s: int
    receive_maximum: int
    maximum_packet_size_bytes: int
    topic_alias_maximum: int
    user_name: str | None = None
    password: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Wish({self.client_identifier!r})"


def connect(wish: Wish) -> dict[str, Any]:
    """The fields of CONNECT."""
    properties: dict[str, Any] = {
        "session_expiry_interval": wish.session_expiry_s,
        "receive_maximum": wish.receive_maximum,
        "maximum_packet_size": wish.maximum_packet_size_bytes,
        "topic_alias_maximum": wish.topic_alias_maximum,
    }
    if wish.user_properties:
        properties["user_property"] = list(wish.user_properties)
    return {
        "client_identifier": wish.client_identifier,
        "clean_start": wish.clean_start,
        "keep_alive_s": wish.keep_alive_s,
        "user_name": wish.user_name,
        "password": wish.password,
        "properties": properties if wish.protocol_version == 5 else {},
    }


def disconnect(reason_code: int, protocol_version: int, *, forgets: bool) -> dict[str, Any]:
    """The fields of DISCONNECT for this reason; the server `forgets` the session, if the version
    can say that."""
    is_told = forgets and protocol_version == 5
    return {
        "reason_code": (
            ReasonCode.UNSPECIFIED_ERROR if reason_code in SERVERS_REASONS else reason_code
        ),
        "properties": {"session_expiry_interval": 0} if is_told else {},
    }


def read_connack(fields: Mapping[str, Any], wish: Wish) -> Granted | Refused:
    """What a CONNACK says to a client that has asked for this."""
    code, properties = fields["reason_code"], fields["properties"]
    if code != ReasonCode.SUCCESS:
        return Refused(reason_code=code, reason=reason_told(fields))
    return Granted(
        session_present=fields["session_present"] and not wish.clean_start,
        receive_maximum=properties.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT),
        maximum_qos=properties.get("maximum_qos", QOS_MAXIMUM),
        retain_available=properties.get("retain_available", 1) == 1,
        maximum_packet_size_bytes=properties.get("maximum_packet_size", PACKET_SIZE_BYTES_MAXIMUM),
        topic_alias_maximum=properties.get("topic_alias_maximum", 0),
        keep_alive_s=properties.get("server_keep_alive", wish.keep_alive_s),
        client_identifier=properties.get("assigned_client_identifier") or None,
        session_expiry_s=properties.get("session_expiry_interval"),
        wildcards_available=properties.get("wildcard_subscription_available", 1) == 1,
    )


def reason_told(fields: Mapping[str, Any]) -> str:
    """What a server's CONNACK or DISCONNECT says of why, for people: the name of its reason code,
    its own words, and where it sends its clients."""
    properties = fields["properties"]
    told = reason_name(fields["reason_code"])
    if said := properties.get("reason_string"):
        told += f": {said}"
    if elsewhere := properties.get("server_reference"):
        told += f" (server reference: {elsewhere})"
    return told
