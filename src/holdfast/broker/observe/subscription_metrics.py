"""The metrics of durable subscriptions, one by one and all together.

Invariant: at most SUBSCRIPTIONS_SHOWN_MAXIMUM of them are labels.
"""

from collections.abc import Callable
from typing import Final

from holdfast.broker.observe.metric import Labelled, Metric
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.observe.subscriptions import SubscriptionStanding


def _of_each(
    read: Callable[[Snapshot, SubscriptionStanding], float],
) -> Callable[[Snapshot], Labelled]:
    def labelled(seen: Snapshot) -> Labelled:
        rows = seen.oldest_subscriptions
        return [((row.topic_name, row.name), read(seen, row)) for row in rows]

    return labelled


def _age_s(seen: Snapshot, row: SubscriptionStanding) -> float:
    return 0.0 if row.oldest_at_us is None else (seen.now_us - row.oldest_at_us) / 1e6


SUBSCRIPTION_METRICS: Final = (
    Metric("holdfast_durable_subscriptions", "gauge",
           "Durable subscriptions of Pulsar clients, with consumers or without, as of the last"
           " round over all of them, as all of these.", lambda seen: seen.durable_subscriptions),
    Metric("holdfast_durable_subscriptions_backlog_messages", "gauge",
           "Messages that they have and no consumer has.",
           lambda seen: seen.waiting_for_subscriptions_messages),
    Metric("holdfast_durable_subscription_backlog_messages", "gauge",
           "Messages of one that no consumer has; the oldest hundred are shown.",
           _of_each(lambda _, row: row.waiting), ("topic", "subscription")),
    Metric("holdfast_durable_subscription_oldest_seconds", "gauge",
           "How old the oldest message of one is that is not acknowledged; 0: all are.",
           _of_each(_age_s), ("topic", "subscription")),
    Metric("holdfast_durable_subscription_consumers", "gauge", "Consumers of one.",
           _of_each(lambda _, row: row.consumers), ("topic", "subscription")),
)  # fmt: skip
