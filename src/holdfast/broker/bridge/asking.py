"""What a bridge asks its remote for, in packets that the remote takes.

Owns: how subscriptions are divided over SUBSCRIBE packets. Never: sends one, or decides what is
asked for.
"""

from collections.abc import Iterable
from typing import Any, Final

from holdfast.broker.bridge import terms
from holdfast.core.bridge import Bridge
from holdfast.protocols.mqtt.remote import Granted

Asked = list[dict[str, Any]]
"""The subscriptions of one SUBSCRIBE."""

BESIDE_A_FILTER_BYTES: Final = 3
"""Its length, and the options of its subscription."""
LENGTH_ENDS: Final = (1 << 7, 1 << 14, 1 << 21)
"""From where on Remaining Length takes a byte more (MQTT 5 section 1.5.5)."""


def divided(bridge: Bridge, granted: Granted) -> tuple[list[Asked], list[str]]:
    """What each SUBSCRIBE asks for, in order, and the filters that are too long for any."""
    packets: list[Asked] = []
    too_large: list[str] = []
    maximum, filled = granted.maximum_packet_size_bytes, 0
    for item in terms.subscriptions(bridge, granted):
        takes = len(item["topic_filter"].encode()) + BESIDE_A_FILTER_BYTES
        if _packet_bytes(takes, bridge.mqtt_version) > maximum:
            too_large.append(item["topic_filter"])
        elif packets and _packet_bytes(filled + takes, bridge.mqtt_version) <= maximum:
            packets[-1].append(item)
            filled += takes
        else:
            packets.append([item])
            filled = takes
    return packets, too_large


def filters_of(asked: Iterable[dict[str, Any]]) -> list[str]:
    """In the order in which SUBACK answers them."""
    return [item["topic_filter"] for item in asked]


def _packet_bytes(subscriptions_bytes: int, version: int) -> int:
    # A packet identifier, and from MQTT 5 on the length of no properties.
    rest = 2 + (version == 5) + subscriptions_bytes
    return 2 + sum(rest >= end for end in LENGTH_ENDS) + rest
