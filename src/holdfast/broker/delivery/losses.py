"""The loss ledger: whatever will not be delivered to someone, with its reason.

Owns: counters by reason, and ranges that are merged until they are written. Never: decides that
something is lost.

Invariants:
1. Every loss is counted at once and written within a sweep or two; where losses come faster than
   rows may be written, ranges of one session and reason are merged, never dropped.
2. A loss is appended before the progress that passes over it, so that no crash keeps the progress
   and forgets the loss; but not more than ROWS_PER_SWEEP_MAXIMUM in a sweep.
3. The ledger has at most LEDGER_ROWS_MAXIMUM rows; the oldest go first, and are counted.
4. The log has one line for each row, however often it was written before it was whole.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Loss, Table, format_loss, parse_loss
from holdfast.core.limits import LEDGER_ROWS_MAXIMUM
from holdfast.core.loss_reason import LossReason
from holdfast.kernel import NoticeKind, RangeSet

log = logging.getLogger(__name__)

ROWS_PER_SWEEP_MAXIMUM = 1_000
"""Rows written in one sweep: losses must not become a load of their own."""

MERGED_MAXIMUM = 65_536
"""Ranges that wait to be written; beyond it they are merged over all sessions, by reason."""

UNPROMISED = LossReason.SLOW_READER
"""The reason why a message is lost that nobody had been promised: it came at QoS 0 and was not
stored, or its session is not kept."""

RANGES_MAXIMUM = 64
"""Ranges of offsets in one row; beyond it the newest ones are told as one, which then holds what
was not lost too."""

_Key = tuple[str, int, LossReason]
"""Client identifier, party, reason."""

REASONS: Final = {
    NoticeKind.EXPIRED: LossReason.EXPIRED,
    NoticeKind.SLOW_READER: LossReason.SLOW_READER,
    NoticeKind.TOO_LARGE: LossReason.TOO_LARGE,
    NoticeKind.RETENTION: LossReason.RETENTION,
    NoticeKind.REFUSED: LossReason.REFUSED,
    NoticeKind.DENIED: LossReason.DENIED,
    NoticeKind.SESSION_ENDED: LossReason.SESSION_ENDED,
    NoticeKind.OVERFLOW: LossReason.OVERFLOW,
    NoticeKind.LOOPED: LossReason.LOOP,
    NoticeKind.UNMAPPABLE: LossReason.TOPIC,
    NoticeKind.CLOSED: LossReason.CLOSED,
}
"""What the ledger says for each kind of the kernel's notices."""

Lost = tuple[int, LossReason, int, int, int]
"""Party, reason, first offset, end offset, count."""

Notice = tuple[int, NoticeKind, int, int, int]
"""The same as the kernel gives it."""


class Losses:
    """Counts losses and writes them down."""

    def __init__(
        self, records: ControlRecords, environment_of: Callable[[str], str] = lambda _owner: ""
    ) -> None:
        """`environment_of` tells that of a client or a group; empty if none is known."""
        self._records = records
        view = records.refresh()
        self._next = view.last_loss() + 1
        self._first = view.first_loss() or self._next
        self._merged: dict[_Key, Loss] = {}
        self.is_waiting = False
        self._rows: dict[_Key, tuple[int, Loss]] = {}
        """Rows written since the last sweep, by number: more of the same joins them."""
        self._puts = 0
        self._recorded = 0
        """Losses put on record at once since the last sweep."""
        self.by_reason: Counter[LossReason] = Counter()
        self.by_environment: Counter[tuple[str, LossReason]] = Counter()
        """Of whoever is known to be of one."""
        self._environment_of = environment_of
        self.rows_removed = 0
        """Rows that left the ledger because it was full."""
        self.stand_ins: dict[int, int] = {}
        """Parties whose losses are those of another party (re-drives)."""
        self.watched: dict[int, Counter[LossReason]] = {}
        """By reason, the losses of parties that are told of one by one (bridges)."""

    def notice(self, notices: Iterable[Notice], name_of: Callable[[int], str], now_us: int) -> None:
        """Takes what the kernel reported, as `note` does."""
        lost = (
            (party, REASONS[kind], first, end, count) for party, kind, first, end, count in notices
        )
        self.note(lost, name_of, now_us)

    def note(self, lost: Iterable[Lost], name_of: Callable[[int], str], now_us: int) -> None:
        """Takes what was lost; `name_of` gives the client identifier of a party."""
        for loser, reason, first, end, count in lost:
            party = self.stand_ins.get(loser, loser)
            ranges = [(first, end)] if end else []
            self.add(loss_of(name_of(party), party, reason, ranges, count, now_us))

    def has_room(self) -> bool:
        """True if `record` may be called in this turn, as often as a piece of a chore may lose."""
        return self._recorded < ROWS_PER_SWEEP_MAXIMUM

    def record(self, loss: Loss, now_us: int) -> None:
        """Counts a loss and writes it now; what waits of the same session and reason joins it."""
        self.add(loss)
        self._recorded += 1
        loss = self._credited(loss)
        key = (loss.client_identifier, loss.party, loss.reason)
        self._put(key if key in self._merged else ("", 0, loss.reason), now_us)

    def add(self, loss: Loss) -> None:
        """Counts a loss and keeps it until the next sweep."""
        loss = self._credited(loss)
        self.by_reason[loss.reason] += loss.count
        environment = self._environment_of(loss.client_identifier)
        if environment:
            self.by_environment[environment, loss.reason] += loss.count
        if loss.party in self.watched:
            self.watched[loss.party][loss.reason] += loss.count
        key = (loss.client_identifier, loss.party, loss.reason)
        if key not in self._merged and len(self._merged) >= MERGED_MAXIMUM:
            loss = replace(loss, client_identifier="", party=0)
            key = ("", 0, loss.reason)
        known = self._merged.get(key)
        self._merged[key] = loss if known is None else _merge(known, loss)
        self.is_waiting |= loss.reason != UNPROMISED

    def write_ahead(self, now_us: int) -> bool:
        """Writes what was promised and lost; to be called before progress is remembered. Returns
        whether that was all: beyond the rows of a sweep the rest waits for the next one."""
        if not self.is_waiting:
            return True
        self.is_waiting = False
        promised = [key for key in self._merged if key[2] != UNPROMISED]
        room = max(ROWS_PER_SWEEP_MAXIMUM - self._puts, 0)
        for key in promised[:room]:
            self._put(key, now_us)
        return len(promised) <= room

    def write(self, now_us: int) -> None:
        """Writes what was merged, oldest first, as many rows as one sweep may, and warns of each
        row since the last sweep."""
        for key in list(islice(self._merged, ROWS_PER_SWEEP_MAXIMUM)):
            self._put(key, now_us)
        for _, loss in self._rows.values():
            _warn(loss)
        self._rows.clear()
        self._puts = self._recorded = 0

    def find(self, number: int) -> Loss | None:
        """The row of this number; more of the same joins it no more."""
        value = self._records.get(Table.LOSSES, _row_key(number))
        if not value:
            return None
        loss = parse_loss(value)
        if self._rows.pop((loss.client_identifier, loss.party, loss.reason), None) is not None:
            _warn(loss)
        return loss

    def redriven(self, number: int, loss: Loss, now_us: int) -> None:
        """The row says from now on that it was driven again."""
        value = format_loss(replace(loss, redriven_at_us=now_us))
        self._records.put(Table.LOSSES, _row_key(number), value, now_us)

    def trim(self, now_us: int) -> None:
        """Removes the oldest rows beyond the ledger's bound."""
        # Rows have running numbers, so nobody has to count them.
        excess = self._next - self._first - LEDGER_ROWS_MAXIMUM
        for _ in range(min(excess, ROWS_PER_SWEEP_MAXIMUM)):
            self._records.put(Table.LOSSES, _row_key(self._first), b"", now_us)
            self._first += 1
            self.rows_removed += 1

    def _credited(self, loss: Loss) -> Loss:
        """As a loss of whom its party stands in for."""
        return replace(loss, party=self.stand_ins.get(loss.party, loss.party))

    def _put(self, key: _Key, now_us: int) -> None:
        loss = self._merged.pop(key)
        known = self._rows.get(key)
        if known is None:
            number, self._next = self._next, self._next + 1
        else:
            number, loss = known[0], _merge(known[1], loss)
        self._rows[key] = number, loss
        self._puts += 1
        self._records.put(Table.LOSSES, _row_key(number), format_loss(loss), now_us)


def loss_of(
    client_identifier: str,
    party: int,
    reason: LossReason,
    ranges: Iterable[tuple[int, int]],
    count: int,
    now_us: int,
) -> Loss:
    """A loss of `count` messages in these ranges of offsets; none for what was never stored."""
    spans = RangeSet(list(ranges)).ranges()
    if len(spans) > RANGES_MAXIMUM:
        spans[RANGES_MAXIMUM - 1 :] = [(spans[RANGES_MAXIMUM - 1][0], spans[-1][1])]
    return Loss(
        client_identifier=client_identifier,
        party=party,
        reason=reason,
        first_offset=spans[0][0] if spans else 0,
        end_offset=spans[-1][1] if spans else 0,
        count=count,
        at_us=now_us,
        ranges=tuple(spans) if len(spans) > 1 else (),
    )


def _warn(loss: Loss) -> None:
    fields = {
        "client_identifier": loss.client_identifier,
        "reason": loss.reason,
        "messages": loss.count,
    }
    log.warning("messages lost", extra={"fields": fields})


def _merge(first: Loss, second: Loss) -> Loss:
    ranges, count = (*first.spans, *second.spans), first.count + second.count
    who = (first.client_identifier, first.party, first.reason)
    return loss_of(*who, ranges, count, second.at_us)


def _row_key(number: int) -> bytes:
    return number.to_bytes(8, "big")
