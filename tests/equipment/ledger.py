"""The judge of losses: whatever somebody does not get is in the ledger.

Owns: the balance of each subscriber: published = delivered + pending + losses.
Never: reads the ledger; what it says is in the history. At the end of a run nothing is pending.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from tests.equipment.expectations import Expectations, filter_matches
from tests.equipment.history import History, Ledger, Message, Opened, QueueLimited, Subscribing

QUEUE_MAXIMUM = 10_000
"""What a queue at rest keeps where the history does not say otherwise."""

HONEST: dict[str, Callable[[Expectations, str, Message], bool]] = {
    "expired": Expectations.may_expire,
    "too_large": Expectations.is_too_large,
}
"""By its reason, what has to be true of a message that a subscriber has lost."""

SESSION_ENDED = "session_ended"
"""What a session leaves behind nobody is owed any more, so it excuses nothing that is lacking."""

NOT_IN_THE_LOG = "retention"
"""Removed by retention, or damaged."""


def lacking(expectations: Expectations, subscriber: str) -> int:
    """How many messages it is owed and has not got, for whatever reason."""
    return sum(
        1
        for message in expectations.acknowledged - expectations.damaged
        if expectations.effective_qos(subscriber, message)
        and not expectations.received[subscriber][message]
    )


def check_every_loss_is_in_the_ledger(history: History) -> list[str]:
    """Is the number of messages that each subscriber lacks in the ledger, and nothing in it for
    those who can have lost nothing for that reason?"""
    expectations = Expectations(history)
    ledger: dict[str, Counter[str]] = defaultdict(Counter)
    for event in history.events:
        if isinstance(event, Ledger):
            ledger[event.subscriber][event.reason] += event.count
    violations = []
    for subscriber in expectations.subscribers():
        missing = lacking(expectations, subscriber)
        told = ledger[subscriber].total() - ledger[subscriber][SESSION_ENDED]
        if missing > told:
            violations.append(f"{subscriber} lacks {missing} messages, the ledger tells of {told}")
    for subscriber in expectations.subscribers():
        violations += [
            f"the ledger tells of {count} losses of {subscriber}, without reason: {reason}"
            for reason, count in ledger[subscriber].items()
            if count and not _is_honest(expectations, subscriber, reason)
        ]
    return violations


def _is_honest(expectations: Expectations, subscriber: str, reason: str) -> bool:
    if reason == SESSION_ENDED:
        return subscriber in expectations.may_have_ended
    if reason == NOT_IN_THE_LOG and expectations.damaged:
        # Nobody can say of a damaged record whose it was, so everybody is told of it.
        return True
    if reason == NOT_IN_THE_LOG and subscriber in expectations.may_have_ended:
        # Retention keeps nothing for a session that ends with its connection.
        return True
    honest = HONEST.get(reason, Expectations.may_be_lost)
    return any(honest(expectations, subscriber, message) for message in expectations.sent())


def check_queues_overflow_only_when_full(history: History) -> list[str]:
    """Was no queue cut that had not more than it may have? Whatever is cut, the newest stay."""
    maximum = QUEUE_MAXIMUM
    overflow: Counter[str] = Counter()
    connections: Counter[str] = Counter()
    filters: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        match event:
            case QueueLimited(messages_maximum):
                maximum = messages_maximum
            case Opened(client):
                connections[client] += 1
            case Subscribing(subscriber, topic_filter):
                filters[subscriber].add(topic_filter)
            case Ledger(client, "overflow", count) if client in filters:
                overflow[client] += count
            case _:
                pass
    sent = Expectations(history).sent()

    def records(message: Message) -> int:
        """How often it may be stored: at QoS 1 its publisher may have sent it on each
        connection."""
        return 1 if message.qos == 2 else max(connections[message.publisher], 1)

    violations = []
    for client, count in overflow.items():
        stored = sum(
            records(message)
            for message in sent
            if message.qos and any(filter_matches(item, message.topic) for item in filters[client])
        )
        if count > max(stored - maximum, 0):
            violations.append(f"the queue of {client} lost {count} of {stored}, {maximum} may stay")
    return violations
