"""What each subscriber of a run is owed and may be given, told by the order of events.

Owns: the matching of topics, and windows: from when until when a subscription holds.
Never: judges, asks the broker, or shares code with it.

Invariants:
1. A message is owed where it was sent after a SUBACK and acknowledged before the UNSUBSCRIBE; it is
   allowed where it may have been stored between SUBSCRIBE and UNSUBACK.
2. With a session everything ends that it was owed.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache

from tests.equipment.history import (
    Acknowledged,
    Applied,
    Closed,
    Connecting,
    Damaged,
    Event,
    History,
    Message,
    Opened,
    QueueLimited,
    Received,
    Refused,
    Sent,
    Subscribed,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
)

FOREVER = 1 << 60

SHARED = "$share/"

PACKET_OVERHEAD_BYTES = 200
"""More than topic, identifier and properties of any message here take."""

SHORT_EXPIRY_S = 600
"""A message with a shorter Message Expiry Interval may expire within a run."""


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


def is_shared(topic_filter: str) -> bool:
    """True if it makes its subscriber a member of a group."""
    return topic_filter.startswith(SHARED)


def unshared(topic_filter: str) -> str:
    """The filter that a group of shared subscriptions reads, or the filter itself."""
    return topic_filter.split("/", 2)[2] if is_shared(topic_filter) else topic_filter


@dataclass(slots=True)
class Hold:
    """One subscription between its beginning and its end, by places in the history."""

    qos: int
    asked: int
    """SUBSCRIBE was sent."""
    since: int = FOREVER
    """SUBACK came."""
    until: int = FOREVER
    """UNSUBSCRIBE was sent."""
    gone: int = FOREVER
    """UNSUBACK came."""


class Expectations:
    """What every subscriber was owed and may be given."""

    def __init__(self, history: History) -> None:
        self.acknowledged: set[Message] = set()
        self.received: dict[str, Counter[Message]] = defaultdict(Counter)
        self.packet_bytes_maximum: dict[str, int] = {}
        self.damaged: set[Message] = set()
        self._given_up_for: frozenset[str] = frozenset()
        """Clients for whom messages may be given up."""
        self._is_limited = False
        """True where queues at rest are shorter than what a run may put into them."""
        self._transient: set[str] = set()
        """Clients whose sessions end with their connections."""
        self.may_have_ended: set[str] = set()
        """Clients of whom a session may have ended."""
        self._attempts: Counter[str] = Counter()
        """CONNECTs since the last one that was answered."""
        self._sent_at: dict[Message, int] = {}
        self._acknowledged_at: dict[Message, int] = {}
        self._held: dict[str, dict[str, list[Hold]]] = defaultdict(lambda: defaultdict(list))
        for place, event in enumerate(history.events):
            self.take(place, event)

    def take(self, place: int, event: Event) -> None:
        """The next event."""
        match event:
            case Opened():
                self._take_opened(event)
            case Closed(client) if client in self._transient:
                self._held[client].clear()
            case Connecting(client, will):
                self._attempts[client] += 1
                if will is not None:
                    self._sent_at.setdefault(will, place)
            case Sent(message):
                self._sent_at[message] = place
            case Acknowledged(message):
                self.acknowledged.add(message)
                self._acknowledged_at.setdefault(message, place)
            case Refused(message, _):
                self.acknowledged.discard(message)
            case Received(subscriber, message, _, _, retain) if not retain:
                self.received[subscriber][message] += 1
            case Applied() | QueueLimited() | Damaged():
                self._take_rule(event)
            case Subscribing() | Subscribed() | Unsubscribing() | Unsubscribed():
                holds = self._held[event.subscriber][event.topic_filter]
                _take_subscription(holds, place, event)
            case _:
                pass

    def _take_rule(self, event: Applied | QueueLimited | Damaged) -> None:
        """What need not arrive."""
        match event:
            case Applied(subscribers):
                self._given_up_for = subscribers if event.give_up_reason else frozenset()
            case QueueLimited():
                self._is_limited = True
            case Damaged(message):
                self.damaged.add(message)

    def _take_opened(self, event: Opened) -> None:
        client = event.client
        was_there = client in self.packet_bytes_maximum
        if not event.present:
            self._held[client].clear()
        if event.expiry_s < SHORT_EXPIRY_S or (was_there and not event.present):
            self.may_have_ended.add(client)
        if self._attempts.pop(client, 0) > 1 and client in self.may_have_ended:
            # A CONNECT that nobody answered may have ended the session and begun this one.
            for holds in self._held[client].values():
                for hold in holds:
                    hold.since = FOREVER
        self.packet_bytes_maximum[client] = event.packet_bytes_maximum
        if event.expiry_s:
            self._transient.discard(client)
        else:
            self._transient.add(client)

    def subscribers(self) -> list[str]:
        """Everybody who ever subscribed."""
        return list(self._held)

    def sent(self) -> list[Message]:
        """Everything that was ever sent."""
        return list(self._sent_at)

    def subscribed(self, subscriber: str) -> dict[str, int]:
        """The filters that a SUBACK has confirmed and no UNSUBSCRIBE has touched, with their
        QoS."""
        return {
            topic_filter: holds[-1].qos
            for topic_filter, holds in self._held[subscriber].items()
            if holds and holds[-1].since != FOREVER and holds[-1].until == FOREVER
        }

    def doubtful(self, subscriber: str) -> set[str]:
        """The filters that are being subscribed to or unsubscribed from."""
        certain = self.subscribed(subscriber)
        return {
            topic_filter
            for topic_filter, holds in self._held[subscriber].items()
            if holds and holds[-1].gone == FOREVER and topic_filter not in certain
        }

    def effective_qos(self, subscriber: str, message: Message) -> int | None:
        """The QoS at which the subscriber is owed the message, or None if it is owed nothing."""
        sent = self._sent_at.get(message, -1)
        acknowledged = self._acknowledged_at.get(message, FOREVER - 1)
        granted = [
            hold.qos
            for topic_filter, holds in self._held[subscriber].items()
            if filter_matches(topic_filter, message.topic)
            for hold in holds
            if hold.since < sent and acknowledged < hold.until
        ]
        return min(message.qos, max(granted)) if granted else None

    def is_allowed(self, subscriber: str, message: Message) -> bool:
        """False if no subscription can have asked for the message."""
        sent = self._sent_at.get(message, -1)
        acknowledged = self._acknowledged_at.get(message, FOREVER)
        # What a group has in store may be older than the part of a member.
        return any(
            (is_shared(topic_filter) or hold.asked < acknowledged) and sent < hold.gone
            for topic_filter, holds in self._held[subscriber].items()
            if filter_matches(unshared(topic_filter), message.topic)
            for hold in holds
        )

    def is_by_group(self, subscriber: str, message: Message) -> bool:
        """True if a group the subscriber is a member of gets the message."""
        return any(
            is_shared(topic_filter) and filter_matches(unshared(topic_filter), message.topic)
            for topic_filter in self._held[subscriber]
        )

    def may_be_lost(self, subscriber: str, message: Message) -> bool:
        """True if there is an honest reason not to deliver it, which the ledger has to name."""
        if message in self.damaged or subscriber in self._given_up_for or self._is_limited:
            return True
        return self.is_too_large(subscriber, message) or self.may_expire(subscriber, message)

    def is_too_large(self, subscriber: str, message: Message) -> bool:
        """True if the message may be larger than what the subscriber takes."""
        limit = self.packet_bytes_maximum.get(subscriber, 0)
        return bool(limit) and message.padding_bytes + PACKET_OVERHEAD_BYTES > limit

    def may_come_late(self, subscriber: str, message: Message) -> bool:
        """True if it may come behind what was sent after it. A publisher that sends a QoS 1 message
        again leaves two records; where the first is lost for an honest reason, the second comes
        behind what followed the first."""
        return message.qos == 1 and self.may_be_lost(subscriber, message)

    def may_expire(self, _subscriber: str, message: Message) -> bool:
        """True if the message may expire within a run."""
        return 0 < message.expiry_s < SHORT_EXPIRY_S


def _take_subscription(
    holds: list[Hold], place: int, event: Subscribing | Subscribed | Unsubscribing | Unsubscribed
) -> None:
    is_open = bool(holds) and holds[-1].gone == FOREVER
    match event:
        case Subscribing():
            if not is_open or holds[-1].until != FOREVER:
                holds.append(Hold(0, place))
        case Subscribed():
            if not is_open:
                holds.append(Hold(0, place))
            holds[-1].qos = event.qos
            holds[-1].since = min(place, holds[-1].since)
        case Unsubscribing():
            if is_open:
                holds[-1].until = min(place, holds[-1].until)
        case Unsubscribed():
            # What was asked for again and never confirmed has ended with the rest.
            for hold in holds:
                hold.until, hold.gone = min(place, hold.until), min(place, hold.gone)
