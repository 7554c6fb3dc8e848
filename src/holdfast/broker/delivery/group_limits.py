"""What the queue of a group at rest may hold: applied when the first member comes back.

Owns: the limits of groups, by number, or by age and bytes where the queue has a name. Never: opens
a queue.
"""

from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queues import Cut, QueueAtRest, cut_to_age, cut_to_limit
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import NamedQueue, kept_from
from holdfast.broker.store.tables import SharedGroup
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import without_past
from holdfast.kernel import Log, state_mark


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The queue of a group at rest, within its limits."""

    before: QueueAtRest
    queue: QueueAtRest
    lost: tuple[LossReason, Cut] | None
    """What it lost by that, with the reason."""


def group_at_rest(log: Log, record: SharedGroup) -> QueueAtRest:
    """The queue of a group that nobody takes from."""
    state = log.delivery_state(record.party) or b""
    mark = state_mark(state)
    return QueueAtRest(state, mark, without_past(record.reads, mark))


def cut_group(log: Log, config: Config, record: SharedGroup, now_us: int) -> Pieces[PreparedGroup]:
    """What a group at rest has waiting, within what it may have; changes nothing."""
    before, inquiry = group_at_rest(log, record), Inquiry(log)
    if record.queue_name is None:
        reason = LossReason.OVERFLOW
        queue, cut = yield from cut_to_limit(
            *(inquiry, record.party, before),
            maximum=config.queue_messages_maximum,
            keep=config.queue_keep,
            end=log.durable_offset(),
            now_us=now_us,
        )
    else:
        reason = LossReason.RETENTION
        oldest = yield from group_kept_from(log, inquiry, config, record, now_us)
        queue, cut = yield from cut_to_age(inquiry, record.party, before, oldest=oldest)
    return PreparedGroup(before, queue, None if cut is None else (reason, cut))


def group_kept_from(
    log: Log, inquiry: Inquiry, config: Config, record: SharedGroup, now_us: int
) -> Pieces[int]:
    """The first offset that the queue of a group with a name keeps."""
    created_at_offset = min(item.from_offset for item in record.reads)
    named = NamedQueue(record.party, record.reads, created_at_offset)
    properties = config.application_queue_properties
    return (yield from kept_from(log, inquiry, named, properties, now_us))
