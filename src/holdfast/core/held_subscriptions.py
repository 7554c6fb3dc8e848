"""All that one session subscribes to, so laid out that one more costs little.

Owns: the value. Never: decides what is granted.

Invariants:
1. A filter is in force at most once.
2. One that is held is never changed: who holds less or more holds another one, and shares with it
   what is the same. So two that are the same object need not be compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.core.share_name import SHARED_PREFIX
from holdfast.core.subscription import IN_FORCE, Subscription, without_past


@dataclass(frozen=True, slots=True)
class HeldSubscriptions:
    """What a session has, present and past. It may be ten thousand."""

    own: Mapping[str, Subscription] = field(default_factory=dict)
    """By topic filter those in force by which its own queue is read."""
    shared: Mapping[str, Subscription] = field(default_factory=dict)
    """By topic filter its parts in groups."""
    past: tuple[Subscription, ...] = ()
    """Own ones that have ended, and hold for what was stored before."""
    filter_bytes: int = 0
    """What the filters of all of them take in UTF-8."""

    def joined_by(self, subscriptions: Iterable[Subscription]) -> "HeldSubscriptions":
        """It and these, of which one replaces another one in force to the same filter."""
        own, shared, past = dict(self.own), dict(self.shared), list(self.past)
        filter_bytes = self.filter_bytes
        for item in subscriptions:
            topic_filter = item.topic_filter
            if topic_filter.startswith(SHARED_PREFIX):
                is_more, shared[topic_filter] = topic_filter not in shared, item
            elif item.until_offset == IN_FORCE:
                is_more, own[topic_filter] = topic_filter not in own, item
            else:
                is_more = True
                past.append(item)
            if is_more:
                filter_bytes += len(topic_filter.encode())
        return HeldSubscriptions(own, shared, tuple(past), filter_bytes)

    def all(self) -> tuple[Subscription, ...]:
        """All of them, past ones first."""
        return (*self.past, *self.own.values(), *self.shared.values())

    def reads(self) -> tuple[Subscription, ...]:
        """Those by which the session's own queue is read, past ones first."""
        return (*self.past, *self.own.values())

    def __len__(self) -> int:
        return len(self.own) + len(self.shared) + len(self.past)

    def without_past(self, mark: int) -> "HeldSubscriptions":
        """Those that still matter to a queue that has everything below `mark`."""
        past = without_past(self.past, mark)
        if len(past) == len(self.past):
            return self
        gone = _filter_bytes(self.past) - _filter_bytes(past)
        return replace(self, past=past, filter_bytes=self.filter_bytes - gone)


def _filter_bytes(subscriptions: Iterable[Subscription]) -> int:
    return sum([len(item.topic_filter.encode()) for item in subscriptions])


NOTHING_HELD = HeldSubscriptions()
"""What a new session has."""
