"""What must be in force after each acknowledged operation, and the judge that compares it with what
a restart recovers.

Owns: the model: sessions, subscriptions, queued messages and retained topics.
Never: asks the broker. What is on its way when a life ends is in doubt, and either answer is right.
"""

from collections import defaultdict

from tests.equipment.expectations import Expectations, filter_matches
from tests.equipment.history import (
    Acknowledged,
    Damaged,
    Event,
    History,
    Message,
    Opened,
    Received,
    Recovered,
    Refused,
    Sent,
    Unsubscribing,
)

LASTING_S = 86_400


class Twin:
    """The state that the broker has acknowledged."""

    def __init__(self) -> None:
        self._expectations = Expectations(History())
        self._lasting: set[str] = set()
        """Clients whose sessions must be there."""
        self._owed: dict[str, set[Message]] = defaultdict(set)
        self._retained: dict[str, list[Message]] = defaultdict(list)
        """By topic: the newest retained message that was acknowledged, and those sent after it."""
        self._settled: set[str] = set()
        """Topics on which one has been acknowledged."""

    def take(self, place: int, event: Event) -> None:
        """The next event."""
        self._expectations.take(place, event)
        match event:
            case Opened(client):
                if not event.present:
                    self._owed[client].clear()
                if event.expiry_s >= LASTING_S and not event.clean_start:
                    self._lasting.add(client)
                else:
                    self._lasting.discard(client)
            case Sent(message) if message.retain:
                self._retained[message.topic].append(message)
            case Acknowledged(message):
                self._acknowledge(message)
            case Refused(message, _):
                if message in self._retained[message.topic]:
                    self._retained[message.topic].remove(message)
            case Received(subscriber, message):
                self._owed[subscriber].discard(message)
            case Damaged(message):
                for owed in self._owed.values():
                    owed.discard(message)
            case Unsubscribing(subscriber, topic_filter):
                self._owed[subscriber] = {
                    message
                    for message in self._owed[subscriber]
                    if not filter_matches(topic_filter, message.topic)
                }
            case _:
                pass

    def _acknowledge(self, message: Message) -> None:
        if message.retain:
            self._settled.add(message.topic)
            kept = self._retained[message.topic]
            kept[:] = [item for item in kept if item.sequence >= message.sequence]
        expectations = self._expectations
        for client in self._lasting:
            if (
                expectations.effective_qos(client, message)
                and not expectations.received[client][message]
                and not expectations.may_be_lost(client, message)
            ):
                self._owed[client].add(message)

    def differences(self, found: Recovered) -> list[str]:
        """What the broker found otherwise than it must be."""
        lines = []
        for client in sorted(self._lasting):
            if client not in found.subscriptions:
                lines.append(f"the session of {client} is gone")
                continue
            recovered = found.subscriptions[client]
            certain = self._expectations.subscribed(client)
            doubtful = self._expectations.doubtful(client)
            for topic_filter in sorted(certain.keys() | recovered.keys() - doubtful):
                wanted, has = certain.get(topic_filter), recovered.get(topic_filter)
                if wanted != has:
                    lines.append(f"{client} has {topic_filter} at QoS {has}, not {wanted}")
            owed, queued = len(self._owed[client]), found.queued.get(client, 0)
            if queued < owed:
                lines.append(f"{client} is owed {owed} messages, {queued} are queued")
        return lines + self._retained_differences(found.retained)

    def _retained_differences(self, found: frozenset[str]) -> list[str]:
        lines = []
        for topic in sorted(self._settled):
            answers = {not message.empty for message in self._retained[topic]}
            if answers and (topic in found) not in answers:
                lines.append(f"{topic} retains {'something' if topic in found else 'nothing'}")
        return lines


def check_recovery_equals_the_twin(history: History) -> list[str]:
    """Did each restart recover what the operations acknowledged before it had made?"""
    twin = Twin()
    violations = []
    lives = 0
    for place, event in enumerate(history.events):
        if isinstance(event, Recovered):
            lives += 1
            violations += [f"recovery {lives}: {line}" for line in twin.differences(event)]
        else:
            twin.take(place, event)
    return violations
