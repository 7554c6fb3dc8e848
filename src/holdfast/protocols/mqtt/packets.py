"""Control packets as values, from the fields that the kernel decoded.

Owns: which fields a decision may look at, and their types. Never: checks what the decoder has
checked already (lengths, UTF-8, which property may stand where).

Invariant: nothing changes one. CONNECT is not frozen, neither is what is made of it until CONNACK,
and no filter of a SUBSCRIBE: freezing those cost a quarter of the Python of a CONNECT, and a tenth
of that of a SUBSCRIBE with many filters.

Flow: kernel decode -> here -> handshake, subscribe.
"""

from dataclasses import dataclass, field
from typing import Any

Properties = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What is published if the connection ends in any other way than the client's own
    DISCONNECT."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    delay_interval_s: int
    properties: Properties
    """What travels with the message; the Will Delay Interval is not among it."""


@dataclass(slots=True, kw_only=True)
class Connect:
    """A CONNECT packet."""

    protocol_version: int
    client_identifier: str
    clean_start: bool
    keep_alive_s: int
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None
    properties: Properties


@dataclass(slots=True, kw_only=True)
class SubscriptionRequest:
    """One filter of a SUBSCRIBE packet, with its options."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None


def parse_connect(fields: dict[str, Any]) -> Connect:
    """A CONNECT packet from its decoded fields."""
    will = fields["will"]
    return Connect(
        protocol_version=fields["protocol_version"],
        client_identifier=fields["client_identifier"],
        clean_start=fields["clean_start"],
        keep_alive_s=fields["keep_alive_s"],
        user_name=fields["user_name"],
        password=fields["password"],
        will=None if will is None else _parse_will(will),
        properties=fields["properties"],
    )


def parse_subscribe(fields: dict[str, Any]) -> tuple[SubscriptionRequest, ...]:
    """The filters of a SUBSCRIBE packet; all of them carry its Subscription Identifier."""
    identifier = fields["properties"].get("subscription_identifier")
    return tuple(
        SubscriptionRequest(
            topic_filter=item["topic_filter"],
            qos=item["qos"],
            no_local=item["no_local"],
            retain_as_published=item["retain_as_published"],
            retain_handling=item["retain_handling"],
            identifier=identifier,
        )
        for item in fields["subscriptions"]
    )


def _parse_will(fields: dict[str, Any]) -> Will:
    properties = dict(fields["properties"])
    return Will(
        topic_name=fields["topic_name"],
        payload=fields["payload"],
        qos=fields["qos"],
        retain=fields["retain"],
        delay_interval_s=properties.pop("will_delay_interval", 0),
        properties=properties,
    )
