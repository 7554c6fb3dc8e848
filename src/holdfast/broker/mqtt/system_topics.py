"""`$SYS/broker/...` as new subscribers find it: retained in memory, never in the log.

Owns: the newest value of each topic, and which of them a subscription is sent when it begins.
Never: makes a value (observe.system_values does), or sends one to who is subscribed already.

Invariant: values change every few seconds and mean nothing after a restart, so none is stored.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.core.subscription import Subscription
from holdfast.kernel import encode_packet, topic_matches

PREFIX: Final = "$SYS"


def is_system_topic(topic_name: str) -> bool:
    """True if only the broker publishes there. The kernel sees to that for what clients publish."""
    return topic_name == PREFIX or topic_name.startswith(f"{PREFIX}/")


class SystemTopics:
    """The values by topic."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def change(self, values: dict[str, bytes]) -> dict[str, bytes]:
        """Takes over the newest values; returns those that have changed."""
        changed = {
            topic: value for topic, value in values.items() if self._values.get(topic) != value
        }
        self._values = values
        return changed

    def retained(
        self, subscriptions: Iterable[Subscription], *, protocol_version: int, packet_bytes: int
    ) -> bytes:
        """The packets that these new subscriptions are sent, at QoS 0 and with the RETAIN flag.
        None is larger than `packet_bytes`."""
        found = b""
        for subscription in subscriptions:
            # A wildcard at the beginning does not match `$` [MQTT-4.7.2-1].
            if not subscription.topic_filter.startswith(PREFIX):
                continue
            topic_filter = subscription.topic_filter.encode()
            for topic, value in self._values.items():
                if topic_matches(topic_filter, topic.encode()):
                    data = _encode(topic, value, subscription.identifier, protocol_version)
                    found += data if len(data) <= packet_bytes else b""
        return found


def _encode(topic: str, value: bytes, identifier: int | None, protocol_version: int) -> bytes:
    fields = {
        "packet_identifier": 0,
        "qos": 0,
        "retain": True,
        "dup": False,
        "topic_name": topic,
        "payload": value,
        "properties": {} if identifier is None else {"subscription_identifier": [identifier]},
    }
    return encode_packet("publish", fields, protocol_version=protocol_version)
