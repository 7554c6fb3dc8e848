"""The judge of losses: whatever somebody does not get is in the ledger.

Owns: the balance of each subscriber: published = delivered + pending + losses.
Never: reads the ledger; what it says is in the history. At the end of a run nothing is pending.
"""

from collections import Counter

from holdfast.testing.expectations import Expectations
from holdfast.testing.history import History, Ledger


def check_every_loss_is_in_the_ledger(history: History) -> list[str]:
    """Is the number of messages that each subscriber lacks in the ledger, and nothing in it for
    those who can have lost nothing?"""
    expectations = Expectations(history)
    losses: Counter[str] = Counter()
    for event in history.events:
        if isinstance(event, Ledger):
            losses[event.subscriber] += event.count
    violations = []
    for subscriber in expectations.subscribers():
        missing = sum(
            1
            for message in expectations.acknowledged
            if expectations.effective_qos(subscriber, message)
            and not expectations.received[subscriber][message]
        )
        if missing > losses[subscriber]:
            told = losses[subscriber]
            violations.append(f"{subscriber} lacks {missing} messages, the ledger tells of {told}")
    sent = expectations.sent()
    for subscriber in expectations.subscribers():
        count = losses[subscriber]
        if count and not any(expectations.may_be_lost(subscriber, message) for message in sent):
            violations.append(f"the ledger tells of {count} losses of {subscriber}, without reason")
    return violations
