"""Cursors: places in the log that readers keep at the broker, so that it keeps what they have still
to read.

Owns: which cursors there are, their places, and who holds each. Never: delivers anything; a reader
reads the log by offset, and says how far it has come.

Invariants:
1. A cursor is a queue that is never attached: its record and its delivery state are all of it.
2. Its place moves forward only by what is released, whoever asks and however often; an
   administrator alone moves it elsewhere, and never to where the log is not whole.
3. Only its holder releases it. A hold ends with `cursor.hold_timeout_s` in which its holder asks
   for nothing; who holds it is on record, and so still does after a restart.

Flow: admin -> here -> queues; retention asks these queues like any other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import QueueRecord, party_key
from holdfast.core.config import Config
from holdfast.core.cursor import CursorSeen
from holdfast.core.subscription import Subscription
from holdfast.core.units import SECOND_US
from holdfast.kernel import describe_state, new_state, state_skip

QOS_MAXIMUM: Final = 2
"""A cursor wants whatever queues are kept for."""


@dataclass(slots=True)
class _Cursor:
    record: QueueRecord
    asked_at_us: int
    """When its holder last asked for something."""


class Cursors:
    """All cursors of the broker."""

    def __init__(
        self,
        config: Config,
        kernel: KernelStages,
        records: ControlRecords,
        parties: Parties,
        names: QueueNames,
        queues: Queues,
    ) -> None:
        self._log = kernel.log
        self._records = records
        self._parties = parties
        self._names = names
        self._queues = queues
        self._cursors: dict[str, _Cursor] = {}
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Holds last as long from now on."""
        self._hold_us = config.cursor_hold_timeout_s * SECOND_US

    def __len__(self) -> int:
        return len(self._cursors)

    def names(self) -> list[str]:
        """All cursors by name."""
        return sorted(self._cursors)

    def find(self, name: str) -> CursorSeen | None:
        """One cursor, if it is there."""
        cursor = self._cursors.get(name)
        if cursor is None:
            return None
        record = cursor.record
        return CursorSeen(
            name=record.owner,
            party=record.party,
            reads=record.reads,
            place=self._queues.mark(record),
            made_by=record.made_by,
            holder=record.holder,
            held_as=record.held_as,
            hold_ends_at_us=cursor.asked_at_us + self._hold_us,
        )

    def make(
        self, name: str, selection: Sequence[str], place: int, made_by: str, now_us: int
    ) -> None:
        """There is a cursor of this name from now on, which nobody holds."""
        assert place >= self._log.whole_from(), "it would be promised what the log may not have"
        reads = tuple(map(_subscription, selection))
        self._put_new(name, reads, place, [], made_by, now_us)

    def fork(self, original: str, name: str, made_by: str, now_us: int) -> None:
        """There is another cursor with the selection and the place of this one, which nobody
        holds."""
        record = self._cursors[original].record
        state = describe_state(self._state(record))
        released = [tuple(span) for span in state["acknowledged"]]
        self._put_new(name, record.reads, state["mark"], released, made_by, now_us)

    def hold(self, name: str, holder: str, held_as: str, now_us: int) -> bool:
        """This holder has it from now on, or still; false if another one does."""
        cursor = self._cursors[name]
        if not self._may_be_taken(cursor, holder, now_us):
            return False
        cursor.asked_at_us = now_us
        record = cursor.record
        if (record.holder, record.held_as) != (holder, held_as):
            self._put(cursor, replace(record, holder=holder, held_as=held_as), now_us)
        return True

    def let_go(self, name: str, now_us: int) -> None:
        """Nobody holds it from now on."""
        cursor = self._cursors[name]
        if cursor.record.holder:
            self._put(cursor, replace(cursor.record, holder="", held_as=""), now_us)

    def release(self, name: str, offset: int, now_us: int) -> None:
        """Everything below an offset needs to be kept no more. It is durable with the next commit:
        a place that is lost in a crash is released once more."""
        record = self._cursors[name].record
        if offset > self._queues.mark(record):
            state = state_skip(self._state(record), offset)
            self._records.put_delivery_state(party_key(record.party), state, now_us)

    def move(self, name: str, offset: int, now_us: int) -> None:
        """Its place is here from now on, before or behind where it was."""
        assert offset >= self._log.whole_from(), "it would be promised what the log may not have"
        record = self._cursors[name].record
        self._records.put_delivery_state(party_key(record.party), new_state(offset, []), now_us)

    def remove(self, name: str, now_us: int) -> None:
        """It is gone; nothing is kept for it any more."""
        record = self._cursors.pop(name).record
        self._names.release(record.queue_name)
        self._queues.end(record.party, now_us)

    def recover(self, queues: Iterable[QueueRecord], now_us: int) -> None:
        """Finds the cursors among these queues on record. Their holders may have been there until
        just now."""
        for record in queues:
            if record.kind == "cursor":
                self._names.take(record.owner, Owner("cursor", record.owner))
                self._cursors[record.owner] = _Cursor(record, now_us)

    def sweep(self, now_us: int) -> None:
        """Holds end whose holders have asked for nothing for so long."""
        for name, cursor in self._cursors.items():
            if cursor.record.holder and self._is_over(cursor, now_us):
                self.let_go(name, now_us)

    def _may_be_taken(self, cursor: _Cursor, holder: str, now_us: int) -> bool:
        held_by = cursor.record.holder
        return held_by in ("", holder) or self._is_over(cursor, now_us)

    def _is_over(self, cursor: _Cursor, now_us: int) -> bool:
        return now_us >= cursor.asked_at_us + self._hold_us

    def _state(self, record: QueueRecord) -> bytes:
        state = self._log.delivery_state(record.party)
        return state or new_state(record.created_at_offset, [])

    def _put_new(
        self,
        name: str,
        reads: tuple[Subscription, ...],
        place: int,
        released: list[tuple[int, int]],
        made_by: str,
        now_us: int,
    ) -> None:
        assert name not in self._cursors, "who makes one has looked"
        record = QueueRecord(
            party=self._parties.durable(now_us),
            kind="cursor",
            owner=name,
            created_at_offset=place,
            reads=reads,
            queue_name=name,
            made_by=made_by,
        )
        # Its state comes first: a record without one would be kept for from its creation on.
        self._queues.begin(record.party, place, released, now_us)
        self._names.take(name, Owner("cursor", name))
        cursor = self._cursors[name] = _Cursor(record, now_us)
        self._put(cursor, record, now_us)

    def _put(self, cursor: _Cursor, record: QueueRecord, now_us: int) -> None:
        cursor.record = record
        self._queues.put(record, now_us)


def _subscription(topic_filter: str) -> Subscription:
    return Subscription(
        topic_filter=topic_filter,
        qos=QOS_MAXIMUM,
        no_local=False,
        retain_as_published=True,
        identifier=None,
        # Its place alone says where it begins, and may be moved back.
        from_offset=0,
    )
