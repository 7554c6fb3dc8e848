"""What a bridge asks its remote for, and what no more, in packets that the remote takes.

Owns: how subscriptions are divided over SUBSCRIBE packets, and filters over UNSUBSCRIBE packets.
Never: sends one, or decides what is asked for.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from holdfast.broker.bridge import terms
from holdfast.core.bridge import Bridge
from holdfast.protocols.mqtt.remote import Granted

T = TypeVar("T")

Asked = list[dict[str, Any]]
"""The subscriptions of one SUBSCRIBE."""

LENGTH_BYTES: Final = 2
"""The length of a filter, before it."""
OPTIONS_BYTES: Final = 1
"""The options of a subscription, behind its filter."""
LENGTH_ENDS: Final = (1 << 7, 1 << 14, 1 << 21)
"""From where on Remaining Length takes a byte more (MQTT 5 section 1.5.5)."""


def divided(bridge: Bridge, granted: Granted) -> tuple[list[Asked], list[str]]:
    """What each SUBSCRIBE asks for, in order, and the filters that are too long for any."""
    wanted = [
        (len(item["topic_filter"].encode()) + LENGTH_BYTES + OPTIONS_BYTES, item)
        for item in terms.subscriptions(bridge, granted)
    ]
    packets, too_large = _packed(wanted, bridge.mqtt_version, granted.maximum_packet_size_bytes)
    return packets, filters_of(too_large)


def withdrawn(filters: Iterable[str], bridge: Bridge, granted: Granted) -> list[list[str]]:
    """The filters of each UNSUBSCRIBE, in order; one that is too long for any is left out, since
    this remote cannot have been asked for it."""
    sized = [(len(text.encode()) + LENGTH_BYTES, text) for text in filters]
    return _packed(sized, bridge.mqtt_version, granted.maximum_packet_size_bytes)[0]


def filters_of(asked: Iterable[dict[str, Any]]) -> list[str]:
    """In the order in which SUBACK answers them."""
    return [item["topic_filter"] for item in asked]


def _packed(
    sized: Iterable[tuple[int, T]], version: int, maximum_bytes: int
) -> tuple[list[list[T]], list[T]]:
    """Items in as few packets as fit, in order, with those that fit into none."""
    packets: list[list[T]] = []
    too_large: list[T] = []
    filled = 0
    for takes, item in sized:
        if _packet_bytes(takes, version) > maximum_bytes:
            too_large.append(item)
        elif packets and _packet_bytes(filled + takes, version) <= maximum_bytes:
            packets[-1].append(item)
            filled += takes
        else:
            packets.append([item])
            filled = takes
    return packets, too_large


def _packet_bytes(items_bytes: int, version: int) -> int:
    # A packet identifier, and from MQTT 5 on the length of no properties.
    rest = 2 + (version == 5) + items_bytes
    return 2 + sum(rest >= end for end in LENGTH_ENDS) + rest
