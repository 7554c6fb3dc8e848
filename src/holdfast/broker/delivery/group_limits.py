"""What the queue of a group at rest may hold: applied when the first member comes back.

Never: opens a queue.
"""

from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queues import Cut, QueueAtRest, cut_to_quota
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom
from holdfast.broker.store.tables import SharedGroup
from holdfast.core.quota import Quota
from holdfast.core.subscription import without_past
from holdfast.kernel import Log, state_mark


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The queue of a group at rest, within its limits."""

    before: QueueAtRest
    queue: QueueAtRest
    lost: tuple[tuple[str, Cut], ...]
    """What it lost by that, with the reasons."""


def group_at_rest(log: Log, record: SharedGroup) -> QueueAtRest:
    """The queue of a group that nobody takes from."""
    state = log.delivery_state(record.party) or b""
    mark = state_mark(state)
    created_at_offset = min(item.from_offset for item in record.reads)
    reads = without_past(record.reads, mark)
    return QueueAtRest(record.party, created_at_offset, state, mark, reads)


def cut_group(
    log: Log, kept: KeptFrom, record: SharedGroup, quota: Quota, now_us: int
) -> Pieces[PreparedGroup]:
    """What a group at rest has waiting, within what it may have; changes nothing."""
    before, end = group_at_rest(log, record), log.durable_offset()
    queue, lost = yield from cut_to_quota(kept, Inquiry(log), before, quota, end=end, now_us=now_us)
    return PreparedGroup(before, queue, lost)
