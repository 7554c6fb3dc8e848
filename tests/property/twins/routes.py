"""The twin of the kernel's `Routes`: a list of subscriptions, each compared with the topic.

Owns: the subscriptions in the order in which they were made, and the grants of connections. Never:
fast, and remembers nothing.
Invariant: a queue has one subscription per filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Subscription:
    """What a queue asked for with one filter."""

    connection: int
    owner: int
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None


Terms = tuple[int, bool, list[int]]
"""QoS, Retain As Published, identifiers."""
Target = tuple[int, int, Terms | None, tuple[int, Terms | None] | None]
"""Queue, connection, terms; owner and the terms for its own messages, where there is No Local."""


def _best(subscriptions: list[Subscription]) -> Terms | None:
    if not subscriptions:
        return None
    return (
        max(one.qos for one in subscriptions),
        any(one.retain_as_published for one in subscriptions),
        [one.identifier for one in subscriptions if one.identifier is not None],
    )


def filter_matches(topic_filter: bytes, topic_name: bytes) -> bool:
    """MQTT 5 section 4.7, by its sentences."""
    filter_levels, levels = topic_filter.split(b"/"), topic_name.split(b"/")
    if topic_name.startswith(b"$") and filter_levels[0] in {b"+", b"#"}:
        return False
    if filter_levels[-1] == b"#":
        filter_levels.pop()
        levels = levels[: len(filter_levels)]
    return len(filter_levels) == len(levels) and all(
        wanted in {b"+", level} for wanted, level in zip(filter_levels, levels, strict=True)
    )


Grant = Sequence[tuple[bytes, bool]] | None
"""Rules in order (topic filter, allowed); None allows everything."""


def allows(grant: Grant, topic_name: bytes) -> bool:
    """The first filter that matches decides; none that matches denies."""
    if grant is None:
        return True
    return next((allowed for rule, allowed in grant if filter_matches(rule, topic_name)), False)


class Routes:
    """Subscriptions of queues by (queue, filter)."""

    def __init__(self) -> None:
        self.subscriptions: dict[tuple[int, bytes], Subscription] = {}
        self.grants: dict[int, tuple[Grant, Grant]] = {}

    def grant(self, connection: int, publish: Grant, receive: Grant) -> None:
        """Replaces what the connection may publish and be sent."""
        self.grants[connection] = (publish, receive)

    def may_publish(self, connection: int, topic_name: bytes) -> bool:
        """What its grant says."""
        return allows(self.grants.get(connection, (None, None))[0], topic_name)

    def may_receive(self, connection: int, topic_name: bytes) -> bool:
        """What its grant says."""
        return allows(self.grants.get(connection, (None, None))[1], topic_name)

    def subscribe(self, queue: int, topic_filter: bytes, subscription: Subscription) -> None:
        """Adds or replaces; what is replaced keeps its place."""
        self.subscriptions[queue, topic_filter] = subscription

    def unsubscribe(self, queue: int, topic_filter: bytes) -> bool:
        """True if there was one."""
        return self.subscriptions.pop((queue, topic_filter), None) is not None

    def remove(self, queue: int) -> None:
        """The queue has no subscriptions any more."""
        for key in [key for key in self.subscriptions if key[0] == queue]:
            del self.subscriptions[key]

    def targets(self, topic_name: bytes) -> list[Target]:
        """In queue order."""
        matching: dict[int, list[Subscription]] = {}
        for (queue, topic_filter), subscription in self.subscriptions.items():
            if filter_matches(topic_filter, topic_name):
                matching.setdefault(queue, []).append(subscription)
        return [
            (
                queue,
                all_of[-1].connection,
                _best(all_of),
                (all_of[-1].owner, _best([one for one in all_of if not one.no_local]))
                if all_of[-1].owner and any(one.no_local for one in all_of)
                else None,
            )
            for queue, all_of in sorted(matching.items())
            if self.may_receive(all_of[-1].connection, topic_name)
        ]

    def __len__(self) -> int:
        return len(self.subscriptions)
