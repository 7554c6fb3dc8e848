"""What a bridge asks its remote for, and what no more, in packets that the remote takes.

Owns: how subscriptions are divided over SUBSCRIBE packets, and filters over UNSUBSCRIBE packets;
which of them is next, and what answers it. Never: sends one, or decides what is asked for.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from holdfast.broker.bridge import terms
from holdfast.core.bridge import Bridge
from holdfast.protocols.mqtt.reason_code import ReasonCode
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
ITEMS: Final = {"subscribe": "subscriptions", "unsubscribe": "topic_filters"}
"""In which field a packet has what it asks for."""
ANSWERS: Final = {"subscribe": "suback", "unsubscribe": "unsuback"}


class Questions:
    """What a remote is asked on one connection: what it still has of former settings is withdrawn,
    and then all is asked for, one packet after the answer to the one before."""

    def __init__(
        self,
        bridge: Bridge,
        granted: Granted,
        known: Iterable[str],
        settled: list[dict[str, Any]],
    ) -> None:
        """`known` are filters that the session there may have, and `settled` what this bridge asked
        for on former connections and was granted; what is granted now is put there."""
        if not granted.session_present or bridge.mqtt_version == 5:
            # With MQTT 5 it is said that what was there before brings no retained messages.
            settled.clear()
        self._settled = settled
        packets, too_large = divided(bridge, granted)
        wild = [
            (text, ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
            for text in terms.not_taken(bridge, granted)
        ]
        self.left_out = [*wild, *((text, ReasonCode.PACKET_TOO_LARGE) for text in too_large)]
        """Filters that are not asked for, with the reasons."""
        self.wanted = [text for packet in packets for text in filters_of(packet)]
        """The filters of all that is asked for, and ..."""
        self.gone = [text for text in known if text not in set(self.wanted)]
        """... those of what is not asked for any more."""
        self.identifier = 0
        """The packet identifier of what waits for its answer; 0: nothing does."""
        self._left: deque[tuple[str, list[Any]]] = deque()
        self._left.extend(("unsubscribe", each) for each in withdrawn(self.gone, bridge, granted))
        for packet in packets:
            # Before MQTT 5 each SUBSCRIBE has all retained messages sent again [MQTT-3.8.4-3].
            if asked := [item for item in packet if item not in settled]:
                self._left.append(("subscribe", asked))

    def next(self, free_identifier: Callable[[], int]) -> tuple[str, dict[str, Any]] | None:
        """The kind and the fields of the packet that is to be sent now; `None` once the last one is
        answered."""
        self.identifier = free_identifier() if self._left else 0
        if not self._left:
            return None
        kind, items = self._left[0]
        return kind, {"packet_identifier": self.identifier, ITEMS[kind]: items, "properties": {}}

    def is_answer(self, kind: str, fields: Mapping[str, Any]) -> bool:
        """True if a packet is the answer to what was asked last."""
        is_of_its_kind = bool(self._left) and ANSWERS[self._left[0][0]] == kind
        return is_of_its_kind and fields["packet_identifier"] == self.identifier

    def answered(self, reason_codes: list[int]) -> list[tuple[str, int]]:
        """The filters that the answer refuses, or grants at less than was asked for, with codes.
        Raises `ValueError` if these are more or fewer than filters were asked for."""
        kind, items = self._left.popleft()
        if kind == "unsubscribe":
            # Whether it had been there or not, nothing of it is there now.
            return []
        if len(reason_codes) != len(items):
            raise ValueError(
                f"SUBACK with {len(reason_codes)} codes for {len(items)} subscriptions"
            )
        told = list(zip(items, reason_codes, strict=True))
        self._settled += [item for item, code in told if code < ReasonCode.UNSPECIFIED_ERROR]
        return [
            (item["topic_filter"], code)
            for item, code in told
            if code >= ReasonCode.UNSPECIFIED_ERROR or code < item["qos"]
        ]


def divided(bridge: Bridge, granted: Granted) -> tuple[list[Asked], list[str]]:
    """What each SUBSCRIBE asks for, in order, and the filters that are too long for any."""
    wanted = [
        (len(item["topic_filter"].encode()) + LENGTH_BYTES + OPTIONS_BYTES, item)
        for item in terms.subscriptions(bridge, granted)
    ]
    packets, too_large = _packed(wanted, bridge.mqtt_version, granted.maximum_packet_size_bytes)
    return packets, filters_of(too_large)


def withdrawn(filters: Iterable[str], bridge: Bridge, granted: Granted) -> list[list[str]]:
    """The filters of each UNSUBSCRIBE, in order; one that is too long for any, or not taken, is
    left out, since this remote cannot have been asked for it."""
    taken = (text for text in filters if terms.is_taken(text, granted))
    sized = [(len(text.encode()) + LENGTH_BYTES, text) for text in taken]
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
