"""Values for the tests of what MQTT decides, each with everything set to the ordinary."""

from typing import Any

from holdfast.broker.mqtt.session import Session
from holdfast.core.subscription import Subscription
from holdfast.protocols.mqtt.handshake import Handshake, Offer, Opening
from holdfast.protocols.mqtt.packets import Connect, SubscriptionRequest, Will
from holdfast.protocols.mqtt.session_expiry import SessionPolicy

POLICY = SessionPolicy(expiry_maximum_s=604_800, ttl_s=604_800, strict_expiry=False)
OFFER = Offer(
    receive_maximum=65_535,
    maximum_packet_size_bytes=268_435_460,
    topic_alias_maximum=0,
    keep_alive_maximum_s=65_535,
    sessions=POLICY,
)
ENTROPY = bytes(range(16))


def connect(**fields: Any) -> Connect:
    """A CONNECT of MQTT 5 that asks for nothing in particular."""
    ordinary: dict[str, Any] = {
        "protocol_version": 5,
        "client_identifier": "reader-7",
        "clean_start": True,
        "keep_alive_s": 60,
        "will": None,
        "properties": {},
    }
    return Connect(**(ordinary | fields))


def opening(offer: Offer = OFFER, **fields: Any) -> Opening:
    """What an acceptable CONNECT leads to."""
    decision = Handshake(offer).plan(connect(**fields), ENTROPY)
    assert isinstance(decision, Opening), decision
    return decision


def will(**fields: Any) -> Will:
    """A Will without a delay."""
    ordinary: dict[str, Any] = {
        "topic_name": "zebra/fx/7/state",
        "payload": b"gone",
        "qos": 1,
        "retain": True,
        "delay_interval_s": 0,
        "properties": {},
    }
    return Will(**(ordinary | fields))


def session(**fields: Any) -> Session:
    """A connected persistent session that is kept for an hour."""
    ordinary: dict[str, Any] = {
        "client_identifier": "reader-7",
        "party": 1,
        "protocol_version": 5,
        "created_at_offset": 0,
        "expiry_s": 3_600,
        "connected": True,
    }
    return Session(**(ordinary | fields))


def subscription(topic_filter: str = "zebra/#", **fields: Any) -> Subscription:
    """A subscription in force from the beginning."""
    ordinary: dict[str, Any] = {
        "topic_filter": topic_filter,
        "qos": 1,
        "no_local": False,
        "retain_as_published": False,
        "identifier": None,
        "from_offset": 0,
    }
    return Subscription(**(ordinary | fields))


def request(topic_filter: str = "zebra/#", **fields: Any) -> SubscriptionRequest:
    """One filter of a SUBSCRIBE."""
    ordinary: dict[str, Any] = {
        "topic_filter": topic_filter,
        "qos": 1,
        "no_local": False,
        "retain_as_published": False,
        "retain_handling": 0,
        "identifier": None,
    }
    return SubscriptionRequest(**(ordinary | fields))
