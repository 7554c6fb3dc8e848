"""What a subscription is interested in: a filter, on which terms, from which offset on.

Owns: the value, and which of a client's subscriptions are its own. Never: knows who subscribes.

Invariants:
1. A subscription holds for the offsets from `from_offset` up to, without, `until_offset`.
2. The kernel takes its fields by their places: thousands of them are handed over at one go.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.core.share_name import SHARED_PREFIX, is_shared

IN_FORCE: Final = 2**64 - 1
"""`until_offset` of a subscription that has not ended: larger than any offset."""

Rules = tuple[tuple[str, bool], ...]
"""What a queue leaves out of what it reads: the first filter that matches a topic decides, and
`True` keeps it. What none of them matches is kept."""


class Subscription(NamedTuple):
    """One subscription of a session, present or past."""

    topic_filter: str
    qos: int
    from_offset: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    until_offset: int = IN_FORCE
    keeps_all: bool = False
    """It wants what the log keeps of QoS 0, too."""

    @property
    def in_force(self) -> bool:
        """False once it has been replaced or ended."""
        return self.until_offset == IN_FORCE

    @property
    def shared(self) -> bool:
        """True if it is a part in a group's queue, and none of the session's own."""
        return is_shared(self.topic_filter)


def keeping(subscriptions: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """Those for which messages wait. One at QoS 0 has none waiting: what it matches is sent as it
    comes, or not at all. A message waits if any subscription that keeps matches it, whatever others
    do, since it goes with the highest QoS of all [MQTT-3.3.4-2]."""
    return tuple([item for item in subscriptions if item.qos > 0])


def own_of(subscriptions: tuple[Subscription, ...]) -> tuple[Subscription, ...]:
    """Those by which the session's own queue is read."""
    prefix = SHARED_PREFIX
    return tuple([item for item in subscriptions if not item.topic_filter.startswith(prefix)])


def shared_of(subscriptions: tuple[Subscription, ...]) -> tuple[Subscription, ...]:
    """Those that are parts in groups."""
    prefix = SHARED_PREFIX
    return tuple([item for item in subscriptions if item.topic_filter.startswith(prefix)])


def without_past(subscriptions: tuple[Subscription, ...], mark: int) -> tuple[Subscription, ...]:
    """The subscriptions that still matter to a queue that has everything below `mark`."""
    return tuple([item for item in subscriptions if item.until_offset > mark])
