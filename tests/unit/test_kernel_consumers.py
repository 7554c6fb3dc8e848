"""Consumers as the broker sees them: by their receivers, beside and without a session."""

import pytest

from holdfast.core.subscription import Subscription
from holdfast.kernel import Deliveries

END = 2**64 - 1
SUBSCRIPTION = Subscription(topic_filter="jobs", qos=1, from_offset=0)


def queue_of(deliveries: Deliveries, *, whole: bool = True) -> int:
    return deliveries.open_group(
        party=50,
        owner=50,
        state=b"",
        subscriptions=[SUBSCRIPTION],
        mark=0,
        end_offset=0,
        whole=whole,
    )


def test_consumers_of_a_connection_are_told_apart_and_listed_in_the_order_of_joining() -> None:
    deliveries = Deliveries()
    queue = queue_of(deliveries)
    one, two = deliveries.attach_consumer(7), deliveries.attach_consumer(7)
    deliveries.join_consumer(queue, two, counts_redeliveries=True)
    deliveries.join_consumer(queue, one, counts_redeliveries=True)
    assert deliveries.consumers(queue) == [(two, 0, 0, 0), (one, 0, 0, 0)]
    deliveries.leave_consumer(queue, two)
    assert deliveries.consumers(queue) == [(one, 0, 0, 0)]
    assert deliveries.queues() == []


def test_consumers_end_with_their_connection() -> None:
    deliveries = Deliveries()
    queue = queue_of(deliveries)
    consumer = deliveries.attach_consumer(7)
    deliveries.join_consumer(queue, consumer, counts_redeliveries=False)
    deliveries.close(7)
    assert deliveries.consumers(queue) == []
    with pytest.raises(ValueError, match="no receiver"):
        deliveries.detach_consumer(consumer)


def test_a_consumer_joins_no_queue_that_is_not_whole() -> None:
    deliveries = Deliveries()
    queue = queue_of(deliveries, whole=False)
    consumer = deliveries.attach_consumer(7)
    with pytest.raises(ValueError, match="not for receivers by permits"):
        deliveries.join_consumer(queue, consumer, counts_redeliveries=True)
