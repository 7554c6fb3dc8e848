"""The judge of shared subscriptions: a group is one subscriber with many hands.

Owns: what a group is owed. Never: asks the broker.
"""

from collections import Counter, defaultdict

from tests.equipment.expectations import SHARED, Expectations, filter_matches, unshared
from tests.equipment.history import (
    Acknowledged,
    Damaged,
    History,
    Keyed,
    Ledger,
    Message,
    QueueLimited,
    Received,
    Refused,
    Sent,
    Subscribed,
    Subscribing,
)


class _Group:
    def __init__(self, name: str, since: int) -> None:
        self.name = name
        self.topic_filter = unshared(name)
        self.since = since
        self.qos_maximum = 0
        self.members: set[str] = set()
        self.received: dict[Message, Counter[int]] = defaultdict(Counter)
        self.given_up = 0


def check_groups_give_each_message_to_one(history: History) -> list[str]:
    """Did each group get every acknowledged message, at QoS 2 exactly once over all its members,
    less what the ledger says a member took along when its session ended, or did not fit into a
    queue that is limited?"""
    is_limited = any(isinstance(event, QueueLimited) for event in history.events)
    reasons = ("session_ended", "overflow", "retention") if is_limited else ("session_ended",)
    groups: dict[str, _Group] = {}
    sent_at: dict[Message, int] = {}
    acknowledged: set[Message] = set()
    for place, event in enumerate(history.events):
        match event:
            case Subscribing(member, name) if name.startswith(SHARED):
                groups.setdefault(name, _Group(name, 1 << 60)).members.add(member)
            case Subscribed(_, name, qos) if name in groups:
                groups[name].since = min(place, groups[name].since)
                groups[name].qos_maximum = max(qos, groups[name].qos_maximum)
            case Sent(message):
                sent_at[message] = place
            case Acknowledged(message):
                acknowledged.add(message)
            case Refused(message, _) | Damaged(message):
                acknowledged.discard(message)
            case Received(member, message, qos):
                for group in groups.values():
                    if member in group.members:
                        group.received[message][qos] += 1
            case Ledger(name, reason, count) if name in groups and reason in reasons:
                groups[name].given_up += count
            case _:
                pass
    owed = {message: sent_at[message] for message in acknowledged if message.qos}
    return [line for group in groups.values() for line in _faults(group, owed, is_limited)]


def _faults(group: _Group, owed: dict[Message, int], is_limited: bool) -> list[str]:
    violations = [
        f"{group.name} got {message} {counts[2]} times at QoS 2"
        for message, counts in group.received.items()
        if counts[2] > 1
    ]
    missing = [
        message
        for message, sent in owed.items()
        if sent > group.since
        and filter_matches(group.topic_filter, message.topic)
        and message not in group.received
    ]
    # Only what a member gets at QoS 2 can end with its session [MQTT-4.8.2-5].
    for_ever = [
        message for message in missing if min(message.qos, group.qos_maximum) < 2 and not is_limited
    ]
    violations += [f"{group.name} never got {message}" for message in for_ever]
    excess = len(missing) - len(for_ever) - group.given_up
    if excess > 0:
        first = next(message for message in missing if message not in for_ever)
        violations.append(f"{group.name} lacks {excess} messages without a word, like {first}")
    return violations


def check_keyed_groups_keep_order(history: History) -> list[str]:
    """Did the messages of a publisher on a topic come first in the order they were sent, over all
    members of a group that shares by key?

    Asked at QoS 1: at QoS 2 an exchange stays with the member that began it, and others go on.
    """
    if not any(isinstance(event, Keyed) for event in history.events):
        return []
    violations = []
    groups: dict[str, set[str]] = defaultdict(set)
    seen: set[tuple[str, Message]] = set()
    newest: dict[tuple[str, str, str, int], int] = {}
    expectations = Expectations(history)
    for event in history.events:
        match event:
            case Subscribing(member, name) if name.startswith(SHARED):
                groups[name].add(member)
            case Received(member, message, 1) if not expectations.may_come_late(member, message):
                for name in [name for name, members in groups.items() if member in members]:
                    if (name, message) in seen or not filter_matches(unshared(name), message.topic):
                        continue
                    seen.add((name, message))
                    key = (name, message.publisher, message.topic, message.qos)
                    if message.sequence < newest.get(key, -1):
                        violations.append(f"{name} got {message} after number {newest[key]}")
                    newest[key] = max(message.sequence, newest.get(key, -1))
            case _:
                pass
    return violations
