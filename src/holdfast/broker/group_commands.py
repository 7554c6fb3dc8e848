"""What can be done to groups of shared subscriptions from outside: fork one.

Owns: what a fork may be called, and where it begins. Never: knows how an answer looks.

Invariants:
1. A fork that is answered is durable.
2. A fork moves no other queue: it is one of its own from the moment at which it is made.
3. What a fork begins with is all there: what the log has let go of, or its quota would cut off, is
   refused instead of being missed by it.

Flow: admin -> here -> delivery.groups.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord
from holdfast.broker.turn import Stages
from holdfast.core.config import Config
from holdfast.core.quota import quota_of
from holdfast.core.share_name import SHARED_PREFIX, parse_shared
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

SHARE_NAME_BYTES_MAXIMUM: Final = 1_024
"""As long as a client identifier may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A group that was made from another one."""

    group: str
    """Its whole name."""
    place: int
    """The offset at which it begins."""
    messages: int
    """What waits for it."""
    ends_at_us: int
    """When it is gone if nobody subscribes to it."""


class GroupCommands:
    """Carries them out."""

    def __init__(
        self, stages: Stages, now_us: Callable[[], int], config: Callable[[], Config]
    ) -> None:
        self._stages = stages
        self._groups = stages.groups
        self._log = stages.kernel.log
        self._now_us = now_us
        self._config = config

    async def fork(self, original: str, share_name: str, at_us: int | None) -> Forked:
        """Another group that reads the same, from what was published at a time on, or from the
        place of the original: whatever that one has not had yet is always among it."""
        record = self._find(original)
        name = self._name(record, share_name)
        place = self._place(record, at_us)
        is_earlier = place < self._stages.queues.mark(record)
        way_out = "take a later time, or raise it" if is_earlier else "raise it"
        messages = await self._stages.chores.outcome(self._waiting(record, place))
        quota = quota_of(self._config(), "group", named=False)
        if quota.messages is not None and messages > quota.messages:
            sentence = (
                f"{messages} messages would wait for {name!r}, and queue.messages_maximum lets"
                f" {quota.messages} wait; {way_out}"
            )
            raise CommandRefusedError(Refusal.BEYOND_QUOTA, sentence)
        # Somebody else may have made one of this name, or the original may have ended.
        record, now_us = self._find(original), self._now_us()
        name = self._name(record, share_name)
        self._check_whole(place)
        ends_at_us = now_us + self._config().environments_fork_expiry_s * SECOND_US
        self._groups.fork(original, name, place, ends_at_us, now_us)
        await self._stages.promises.wait_durable(self._log.end_position())
        fields = {"group": name, "original": original, "place": place, "messages": messages}
        log.info("group forked", extra={"fields": fields})
        return Forked(group=name, place=place, messages=messages, ends_at_us=ends_at_us)

    def _find(self, group: str) -> QueueRecord:
        record = self._groups.record(group)
        if record is None:
            sentence = f"no group is called {group!r}; the name begins with $share/"
            raise CommandRefusedError(Refusal.NO_SUCH_GROUP, sentence)
        return record

    def _name(self, record: QueueRecord, share_name: str) -> str:
        """The whole name of the fork."""
        name = f"{SHARED_PREFIX}{share_name}/{record.parts.topic_filter}"
        parts = parse_shared(name)
        is_right = parts is not None and parts.share_name == share_name and share_name.isprintable()
        if not is_right or len(share_name.encode()) > SHARE_NAME_BYTES_MAXIMUM:
            sentence = f"{share_name!r} is no share name: it has a character and no / + #"
            raise CommandRefusedError(Refusal.WRONG_NAME, sentence)
        if name in self._groups:
            sentence = f"there is a group {name!r} already; take another name"
            raise CommandRefusedError(Refusal.NAME_TAKEN, sentence)
        if not self._groups.has_room(name, 0, 0):
            sentence = "there are as many groups as there may be"
            raise CommandRefusedError(Refusal.TOO_MANY, sentence)
        return name

    def _place(self, record: QueueRecord, at_us: int | None) -> int:
        place = self._stages.queues.mark(record)
        if at_us is not None:
            place = min(place, self._log.offset_at(at_us))
        self._check_whole(place)
        return place

    def _check_whole(self, place: int) -> None:
        """Refuses a place before what the log has whole; retention goes on meanwhile."""
        whole_from = self._log.whole_from()
        if place < whole_from:
            sentence = f"offset {place} is gone: the log begins at offset {whole_from}"
            raise CommandRefusedError(Refusal.GONE, sentence)

    def _waiting(self, record: QueueRecord, place: int) -> Pieces[int]:
        inquiry, end = Inquiry(self._log), self._log.end_offset()
        return (yield from inquiry.count(record.reads, record.party, place, end))
