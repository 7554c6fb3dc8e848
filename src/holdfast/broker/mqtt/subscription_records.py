"""What sessions subscribe to, on record: what a session's own queue reads is the queue's, and the
groups that it shares are in SUBSCRIPTIONS.

Owns: the rows of SUBSCRIPTIONS, and how those of former versions, which have the own ones too, are
written anew. Never: decides what is granted.

Invariants:
1. A session has its subscriptions whether or not its former row has been written anew.
2. What a queue reads is on record before it is taken off the former row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces, at_once
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.delivery.queues import Left, Queues
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import (
    READS_AT_ONCE,
    Table,
    format_subscriptions,
    parse_reads,
    parse_subscriptions,
    party_key,
)
from holdfast.core.held_subscriptions import NOTHING_HELD, HeldSubscriptions
from holdfast.core.subscription import Subscription, own_of, shared_of

PIECE_ROWS_MAXIMUM = 20
"""Rows that are looked at in one piece, and perhaps written anew: some 50 us each."""
PIECE_BYTES_MAXIMUM = 20_000
"""And their bytes: a filter has some 150 and takes some 6 us, and a row may have thousands."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a session holds by the records that it had when they were read."""

    values: tuple[bytes, bytes]
    """Its row in SUBSCRIPTIONS, and its queue's in QUEUES."""
    held: HeldSubscriptions


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found out of a session on record before a client gets it."""

    recorded: Recorded | None
    """What it holds, if the client comes back to it."""
    left: Left | None
    """What is lost by ending it, if that is what the client wants, or its time is over."""


NOTHING_RECALLED: Final = Recalled(None, None)


class SubscriptionRecords:
    """Puts subscriptions on record and looks them up."""

    def __init__(self, records: ControlRecords, queues: Queues, groups: Groups) -> None:
        self._records = records
        self._queues = queues
        self._groups = groups
        self.are_renewed = False
        """True once there is no row of a former version."""

    def of(self, session: Session) -> tuple[Subscription, ...]:
        """All that a session subscribes to."""
        row, queue = self._row(session), self._queues.record(session.party)
        return row if queue is None else (*queue.reads, *shared_of(row))

    def read(self, session: Session) -> Pieces[Recorded]:
        """The same by the parts it has, in pieces."""
        row, queue = values = self._values(session)
        held = NOTHING_HELD
        for some in parse_reads(queue):
            if held is not NOTHING_HELD:
                yield None
            held = held.joined_by(some)
        for some in parse_reads(row):
            if len(held) >= READS_AT_ONCE:
                yield None
            # What a former version had there is the queue's, where there is one.
            held = held.joined_by(shared_of(some) if queue else some)
        return Recorded(values, held)

    def held(self, session: Session, recorded: Recorded | None) -> HeldSubscriptions:
        """What it holds now; what was read before need not be read again if that is still on
        record."""
        if recorded is None or recorded.values != self._values(session):
            recorded = at_once(self.read(session))
        return recorded.held

    def shared(self, session: Session) -> tuple[Subscription, ...]:
        """Its parts in groups."""
        return shared_of(self._row(session))

    def put(self, attached: Attached, now_us: int) -> int:
        """What a durable session holds is on record; returns the log position at which that, and
        whatever else it has asked for, is durable. What is there is not written again: a client
        that names all its subscriptions each time it comes may have thousands."""
        new, old, session = attached.held, attached.recorded, attached.session
        if new.shared is not old.shared:
            shared = tuple(new.shared.values())
            attached.changed_at = self._put_row(session, shared, now_us)
        if new.own is not old.own or new.past is not old.past:
            attached.changed_at = self._queues.put(own_queue(session, new.reads()), now_us)
        attached.recorded = new
        return attached.changed_at

    def end(self, session: Session, now_us: int) -> None:
        """The session is gone; what its queue has is removed with the queue."""
        if self._row(session):
            self._put_row(session, (), now_us)

    def renew(self, session: Session, now_us: int) -> None:
        """Writes a former row anew, if it is one."""
        row = () if self.are_renewed else self._row(session)
        own = own_of(row)
        if not own:
            return
        if self._queues.record(session.party) is None:
            self._queues.put(own_queue(session, own), now_us)
        self._put_row(session, shared_of(row), now_us)

    def renew_all(
        self, on_record: Callable[[str], Session | None], clock_us: Callable[[], int]
    ) -> Pieces[None]:
        """Writes all former rows anew, in pieces."""
        after = b""
        while rows := self._records.refresh().rows(Table.SUBSCRIPTIONS, after, PIECE_ROWS_MAXIMUM):
            (after, _), written = rows[-1], 0
            for key, value in rows:
                if written >= PIECE_BYTES_MAXIMUM:
                    yield self._records.is_near
                    written = 0
                written += len(value)
                # The view may be behind, and its client may have come back in the meantime.
                session = on_record(key.decode())
                if session is not None:
                    self.renew(session, clock_us())
            yield self._records.is_near
        self.are_renewed = True

    def _row(self, session: Session) -> tuple[Subscription, ...]:
        return parse_subscriptions(self._row_value(session))

    def _row_value(self, session: Session) -> bytes:
        if self.are_renewed and not self._groups.is_member(session.party):
            # Most share nothing, and need not be looked up.
            return b""
        return self._records.get(Table.SUBSCRIPTIONS, session.client_identifier.encode())

    def _values(self, session: Session) -> tuple[bytes, bytes]:
        queue = self._records.get(Table.QUEUES, party_key(session.party))
        return self._row_value(session), queue

    def _put_row(self, session: Session, items: tuple[Subscription, ...], now_us: int) -> int:
        key, value = session.client_identifier.encode(), format_subscriptions(items)
        return self._records.put(Table.SUBSCRIPTIONS, key, value, now_us)
