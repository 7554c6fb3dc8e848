"""Paho's properties and messages in the words of the drivers, for Paho and what is built on it."""

from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PAHO_NAMES = {
    "payload_format_indicator": "PayloadFormatIndicator",
    "message_expiry_interval": "MessageExpiryInterval",
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "user_properties": "UserProperty",
    "subscription_identifiers": "SubscriptionIdentifier",
    "topic_alias": "TopicAlias",
    "session_expiry_interval": "SessionExpiryInterval",
    "receive_maximum": "ReceiveMaximum",
    "topic_alias_maximum": "TopicAliasMaximum",
}


def to_paho(packet_type: int, values: dict[str, Any]) -> Properties | None:
    """None where there are none."""
    if not values:
        return None
    properties = Properties(packet_type)
    for name, value in values.items():
        if name == "user_properties":
            value = [tuple(pair) for pair in value]
        setattr(properties, PAHO_NAMES[name], value)
    return properties


def from_paho(properties: Properties | None) -> dict[str, Any]:
    """Those of `PAHO_NAMES` that are there."""
    return {
        name: getattr(properties, paho_name)
        for name, paho_name in PAHO_NAMES.items()
        if hasattr(properties, paho_name)
    }


def connect_properties(options: dict[str, Any]) -> Properties | None:
    """The properties of CONNECT."""
    names = ("session_expiry_interval", "receive_maximum", "topic_alias_maximum")
    values = {name: options[name] for name in names if options[name] is not None}
    return to_paho(PacketTypes.CONNECT, values)
