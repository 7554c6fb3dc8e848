"""Judges of a run, one question each.

Owns: what "nothing is lost", "exactly once", "in order" and the like mean, told only by what
clients saw.
Never: asks the broker, and shares no code with it: not even the matching of topics.

Each function returns a sentence for each violation it found; none is a pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache

from holdfast.testing.history import (
    Acknowledged,
    Broken,
    Event,
    History,
    Mark,
    Message,
    Received,
    Refused,
    RetainedRead,
    Sent,
    SessionLost,
    Subscribed,
    Unsubscribing,
    Window,
)

FOREVER = 1 << 60

SHOWN_MAXIMUM = 10
"""Violations that a failure shows; the rest are counted."""

Checker = Callable[[History], list[str]]


@lru_cache(maxsize=100_000)
def filter_matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter matches a topic (MQTT 5 section 4.7), written to be obviously right."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, part in enumerate(wanted):
        if part == "#":
            return True
        if place >= len(levels) or part not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


class _Expectations:
    """What each subscriber was owed, by the order of events."""

    def __init__(self, history: History) -> None:
        self.acknowledged: set[Message] = set()
        self.received: dict[str, Counter[Message]] = defaultdict(Counter)
        self._sent_at: dict[Message, int] = {}
        self._acknowledged_at: dict[Message, int] = {}
        self._held: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
        for place, event in enumerate(history.events):
            self._take(place, event)

    def _take(self, place: int, event: Event) -> None:
        match event:
            case Subscribed(subscriber, topic_filter, qos):
                since, until, _ = self._held[subscriber].get(topic_filter, (place, FOREVER, qos))
                since = since if until == FOREVER else place
                self._held[subscriber][topic_filter] = (since, FOREVER, qos)
            case Unsubscribing(subscriber, topic_filter):
                since, _, qos = self._held[subscriber].get(topic_filter, (place, 0, 0))
                self._held[subscriber][topic_filter] = (since, place, qos)
            case Sent(message):
                self._sent_at[message] = place
            case Acknowledged(message):
                self.acknowledged.add(message)
                self._acknowledged_at.setdefault(message, place)
            case Refused(message, _):
                self.acknowledged.discard(message)
            case Received(subscriber, message, _, _, retain) if not retain:
                self.received[subscriber][message] += 1
            case _:
                pass

    def subscribers(self) -> list[str]:
        return list(self._held)

    def effective_qos(self, subscriber: str, message: Message) -> int | None:
        """The QoS at which the subscriber is owed the message, or None if it is owed nothing."""
        sent = self._sent_at.get(message, -1)
        acknowledged = self._acknowledged_at.get(message, FOREVER - 1)
        granted = [
            qos
            for topic_filter, (since, until, qos) in self._held[subscriber].items()
            if since < sent and acknowledged < until and filter_matches(topic_filter, message.topic)
        ]
        return min(message.qos, max(granted)) if granted else None


def check_nothing_acknowledged_is_lost(history: History) -> list[str]:
    """Did every subscriber get every acknowledged message that it was owed at QoS 1 or 2?"""
    expectations = _Expectations(history)
    return [
        f"{subscriber} never got {message}, which was acknowledged"
        for subscriber in expectations.subscribers()
        for message in sorted(expectations.acknowledged, key=_by_place)
        if expectations.effective_qos(subscriber, message)
        and not expectations.received[subscriber][message]
    ]


def check_nothing_is_invented(history: History) -> list[str]:
    """Was everything that arrived sent before, by the publisher and to the topic it names?"""
    sent: set[Message] = set()
    violations = []
    for event in history.events:
        if isinstance(event, Sent):
            sent.add(event.message)
        elif isinstance(event, Received) and event.message not in sent:
            violations.append(f"{event.subscriber} got {event.message}, which nobody had sent")
    return violations


def check_qos_2_never_twice(history: History) -> list[str]:
    """Was no message handed twice to a subscriber that gets it at QoS 2?"""
    violations = []
    counts: Counter[tuple[str, Message]] = Counter()
    for event in history.events:
        if isinstance(event, Received) and event.qos == 2 and not event.retain:
            counts[event.subscriber, event.message] += 1
            if counts[event.subscriber, event.message] == 2:
                violations.append(f"{event.subscriber} got {event.message} twice at QoS 2")
    return violations


def check_qos_is_the_lower_one(history: History) -> list[str]:
    """Did everything arrive at the lower of the QoS it was sent with and the one subscribed
    with?"""
    expectations = _Expectations(history)
    violations = []
    for event in history.events:
        if isinstance(event, Received) and not event.retain:
            expected = expectations.effective_qos(event.subscriber, event.message)
            if expected is not None and expected != event.qos:
                violations.append(f"{event} should have had QoS {expected}")
    return violations


def check_order_is_kept(history: History) -> list[str]:
    """Did the messages of a publisher on a topic come first in the order they were sent, per
    QoS?"""
    violations = []
    newest: dict[tuple[str, str, str, int], int] = {}
    seen: set[tuple[str, Message]] = set()
    for event in history.events:
        if not isinstance(event, Received) or event.retain:
            continue
        message = event.message
        if (event.subscriber, message) in seen:
            continue  # Sent again: the order of first receipts is what is promised (section 4.6).
        seen.add((event.subscriber, message))
        key = (event.subscriber, message.publisher, message.topic, message.qos)
        if message.sequence < newest.get(key, -1):
            violations.append(f"{event.subscriber} got {message} after number {newest[key]}")
        newest[key] = max(message.sequence, newest.get(key, -1))
    return violations


def check_windows_are_kept(history: History) -> list[str]:
    """Were never more messages unanswered than the subscriber's Receive Maximum?"""
    return [
        f"{event.subscriber} had {event.unanswered} unanswered of {event.receive_maximum} allowed"
        for event in history.events
        if isinstance(event, Window) and event.unanswered > event.receive_maximum
    ]


def check_marks_never_move_back(history: History) -> list[str]:
    """Did every queue's mark only move forward?"""
    violations = []
    newest: dict[str, int] = {}
    for event in history.events:
        if isinstance(event, Mark):
            if event.offset < newest.get(event.party, 0):
                violations.append(f"the mark of {event.party} fell to {event.offset}")
            newest[event.party] = event.offset
    return violations


def check_retained_is_the_last(history: History) -> list[str]:
    """Is what a topic retains the newest acknowledged retained message, or one sent after it?

    It asks only topics with one publisher, whose order is known.
    """
    newest: dict[str, int] = {}
    for event in history.events:
        if isinstance(event, Acknowledged) and event.message.retain:
            topic = event.message.topic
            newest[topic] = max(event.message.sequence, newest.get(topic, -1))
    violations = []
    for event in history.events:
        if isinstance(event, RetainedRead) and event.topic in newest:
            found = -1 if event.message is None else event.message.sequence
            if found < newest[event.topic]:
                violations.append(
                    f"{event.topic} retains number {found}, {newest[event.topic]} was acknowledged"
                )
    return violations


def check_sessions_are_kept(history: History) -> list[str]:
    """Was no confirmed session forgotten, and did no client see what no specification allows?"""
    lost = [f"{e.client}: session lost" for e in history.events if isinstance(e, SessionLost)]
    return lost + [f"{e.client}: {e.what}" for e in history.events if isinstance(e, Broken)]


CHECKERS: tuple[Checker, ...] = (
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
    check_order_is_kept,
    check_windows_are_kept,
    check_marks_never_move_back,
    check_retained_is_the_last,
    check_sessions_are_kept,
)


def judge(history: History) -> None:
    """Asks every question; raises `AssertionError` with what was found."""
    found = {checker.__name__: checker(history) for checker in CHECKERS}
    lines = []
    for name, violations in found.items():
        if violations:
            lines.append(f"{name}: {len(violations)} violations")
            lines += [f"  {violation}" for violation in violations[:SHOWN_MAXIMUM]]
    if lines:
        raise AssertionError("\n".join(lines))


def _by_place(message: Message) -> tuple[str, str, int]:
    return message.publisher, message.topic, message.sequence
