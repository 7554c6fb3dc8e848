"""Where a queue begins, by the age and the bytes that it may have (acceptance S2.53).

Owns: the first offset that a quota keeps. Never: removes a message; the log does, for all queues
together.

Invariant: a queue with a name begins at its creation, or whole segments of its own later. A client
that is connected gets all that was waiting for it while the log has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.store.questions import Inquiry
from holdfast.core.quota import Quota
from holdfast.core.subscription import Subscription, keeping
from holdfast.core.units import SECOND_US
from holdfast.kernel import Log


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """What a queue is made of."""

    party: int
    subscriptions: Sequence[Subscription]
    created_at_offset: int


class KeptFrom:
    """Finds the first offset that a queue keeps."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known = (0, 0)
        """A second, and the offset that was found in it."""

    def by_age(self, quota: Quota, now_us: int) -> int:
        """The offset of the oldest message that is young enough, to the second; 0: of any age. It
        is looked up once in a second: a fleet that comes back would ask thousands of times."""
        if quota.age_us is None:
            return 0
        second = max((now_us - quota.age_us) // SECOND_US, 0)
        if self._known[0] != second:
            self._known = second, self._log.offset_at(second * SECOND_US)
        return self._known[1]

    def offset(self, inquiry: Inquiry, queue: QueueSpan, quota: Quota, now_us: int) -> Pieces[int]:
        """The same by age and bytes."""
        if not quota.step_bytes:
            return self.by_age(quota, now_us)
        begin, end = queue.created_at_offset, self._log.durable_offset()
        aged_until = begin
        if quota.age_us is not None:
            aged_until = self._log.offset_at(max(now_us - quota.age_us, 0))
        # Most logs are small and young, and then nothing has to be weighed.
        large = quota.bytes is not None and quota.bytes < self._log.statistics()["bytes"]
        wanted = keeping(queue.subscriptions)
        if not wanted or (aged_until <= begin and not large):
            return begin
        all_of_it = yield from inquiry.weigh(wanted, queue.party, begin, end)
        aged = yield from inquiry.weigh(wanted, queue.party, begin, max(aged_until, begin))
        drop = quota.plan_drop(all_of_it, aged)
        if not drop:
            return begin
        return (yield from _offset_after(inquiry, wanted, queue.party, (begin, end), drop))


def _offset_after(
    inquiry: Inquiry, wanted: Sequence[Subscription], party: int, span: tuple[int, int], drop: int
) -> Pieces[int]:
    """The offset before which the oldest messages of a span have `drop` bytes."""
    low, high = span
    while high - low > 1:
        middle = (low + high) // 2
        # Only what lies between is weighed, so that all steps together cost two looks at all of it.
        passed = yield from inquiry.weigh(wanted, party, low, middle)
        if passed < drop:
            low, drop = middle, drop - passed
        else:
            high = middle
    return high
