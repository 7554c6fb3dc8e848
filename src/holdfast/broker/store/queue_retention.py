"""How much a queue with a name keeps, and what its absent client loses by that (acceptance S2.53).

Owns: where such a queue begins. Never: removes a message; the log does, for all queues together.

Invariant: a queue begins at its creation, or whole segments of its own later. A client that is
connected gets all that was waiting for it while the log has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.broker.chores import Pieces
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription
from holdfast.core.topic_properties import UNLIMITED, TopicProperties
from holdfast.core.units import MILLISECOND_US
from holdfast.kernel import Log

UNLIMITED_MESSAGES = 2**63
"""A queue with a name is limited by age and bytes, not by a number."""


@dataclass(frozen=True, slots=True)
class NamedQueue:
    """What such a queue is made of."""

    party: int
    subscriptions: Sequence[Subscription]
    created_at_offset: int


def kept_from(
    log: Log, inquiry: Inquiry, queue: NamedQueue, properties: TopicProperties, now_us: int
) -> Pieces[int]:
    """The first offset that the queue keeps."""
    begin, end = queue.created_at_offset, log.durable_offset()
    aged_until = begin
    if properties.retention_ms != UNLIMITED:
        aged_until = log.offset_at(max(now_us - properties.retention_ms * MILLISECOND_US, 0))
    # Most logs are small and young, and then nothing has to be weighed.
    large = 0 <= properties.retention_bytes < log.statistics()["bytes"]
    tables = [item.table() for item in queue.subscriptions if item.qos > 0]
    if not tables or (aged_until <= begin and not large):
        return begin
    all_of_it = yield from inquiry.weigh(tables, queue.party, begin, end)
    aged = yield from inquiry.weigh(tables, queue.party, begin, max(aged_until, begin))
    drop = properties.plan_drop(all_of_it, aged)
    if not drop:
        return begin
    return (yield from _offset_after(inquiry, tables, queue.party, begin, end, drop))


def _offset_after(
    inquiry: Inquiry, tables: list[dict[str, Any]], party: int, begin: int, end: int, drop: int
) -> Pieces[int]:
    """The offset before which the oldest messages have `drop` bytes."""
    low, high = begin, end
    while high - low > 1:
        middle = (low + high) // 2
        # Only what lies between is weighed, so that all steps together cost two looks at all of it.
        passed = yield from inquiry.weigh(tables, party, low, middle)
        if passed < drop:
            low, drop = middle, drop - passed
        else:
            high = middle
    return high
