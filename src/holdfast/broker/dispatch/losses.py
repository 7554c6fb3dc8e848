"""The loss ledger: whatever will not be delivered to someone, with its reason.

Owns: counters by reason, and ranges that are merged until they are written. Never: decides that
something is lost.

Invariants:
1. Every loss is counted at once and written within a sweep or two; where losses come faster than
   rows may be written, ranges of one session and reason are merged, never dropped.
2. A loss is appended before the progress that passes over it, so that no crash keeps the progress
   and forgets the loss; but not more than ROWS_PER_SWEEP_MAXIMUM in a sweep.
3. The ledger has at most LEDGER_ROWS_MAXIMUM rows; the oldest go first, and are counted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Loss, Table, format_loss
from holdfast.core.limits import LEDGER_ROWS_MAXIMUM

log = logging.getLogger(__name__)

ROWS_PER_SWEEP_MAXIMUM = 1_000
"""Rows written in one sweep: losses must not become a load of their own."""

MERGED_MAXIMUM = 65_536
"""Ranges that wait to be written; beyond it they are merged over all sessions, by reason."""

UNPROMISED = "slow_reader"
"""The reason of messages of QoS 0 that were never stored: no progress passes over them."""

_Key = tuple[str, int, str]
"""Client identifier, party, reason."""

Notice = tuple[int, str, int, int, int]
"""Party, reason, first offset, end offset, count; as the kernel gives it."""


class Losses:
    """Counts losses and writes them down."""

    def __init__(self, records: ControlRecords) -> None:
        self._records = records
        self._next = records.refresh().last_loss() + 1
        self._merged: dict[_Key, Loss] = {}
        self._is_waiting = False
        self._rows: dict[_Key, tuple[int, Loss]] = {}
        """Rows written since the last sweep, by number: more of the same joins them."""
        self._puts = 0
        self.by_reason: Counter[str] = Counter()

    def note(self, notices: Iterable[Notice], name_of: Callable[[int], str], now_us: int) -> None:
        """Takes what the kernel reported; `name_of` gives the client identifier of a party."""
        for party, reason, first, end, count in notices:
            self.add(
                Loss(
                    client_identifier=name_of(party),
                    party=party,
                    reason=reason,
                    first_offset=first,
                    end_offset=end,
                    count=count,
                    at_us=now_us,
                )
            )

    def add(self, loss: Loss) -> None:
        """Counts a loss and keeps it until the next sweep."""
        self.by_reason[loss.reason] += loss.count
        key = (loss.client_identifier, loss.party, loss.reason)
        if key not in self._merged and len(self._merged) >= MERGED_MAXIMUM:
            loss = replace(loss, client_identifier="", party=0)
            key = ("", 0, loss.reason)
        known = self._merged.get(key)
        self._merged[key] = loss if known is None else _merge(known, loss)
        self._is_waiting |= loss.reason != UNPROMISED

    def write_ahead(self, now_us: int) -> None:
        """Writes what was promised and lost; to be called before progress is remembered."""
        if not self._is_waiting:
            return
        self._is_waiting = False
        promised = [key for key in self._merged if key[2] != UNPROMISED]
        room = max(ROWS_PER_SWEEP_MAXIMUM - self._puts, 0)
        for key in promised[:room]:
            self._put(key, now_us)

    def write(self, now_us: int) -> None:
        """Writes what was merged, oldest first, as many rows as one sweep may."""
        for key in list(self._merged)[:ROWS_PER_SWEEP_MAXIMUM]:
            self._put(key, now_us)
        self._rows.clear()
        self._puts = 0

    def trim(self, now_us: int) -> None:
        """Removes the oldest rows beyond the ledger's bound."""
        view = self._records.refresh()
        excess = view.loss_count() - LEDGER_ROWS_MAXIMUM
        if excess > 0:
            for key, _value in view.losses(min(excess, ROWS_PER_SWEEP_MAXIMUM)):
                self._records.put(Table.LOSSES, key, b"", now_us)
                self.by_reason["ledger_rows_removed"] += 1

    def _put(self, key: _Key, now_us: int) -> None:
        loss = self._merged.pop(key)
        fields = {
            "client_identifier": loss.client_identifier,
            "reason": loss.reason,
            "messages": loss.count,
        }
        log.warning("messages lost", extra={"fields": fields})
        known = self._rows.get(key)
        if known is None:
            number, self._next = self._next, self._next + 1
        else:
            number, loss = known[0], _merge(known[1], loss)
        self._rows[key] = number, loss
        self._puts += 1
        self._records.put(Table.LOSSES, number.to_bytes(8, "big"), format_loss(loss), now_us)


def _merge(first: Loss, second: Loss) -> Loss:
    stored = [loss for loss in (first, second) if loss.end_offset]
    return Loss(
        client_identifier=first.client_identifier,
        party=first.party,
        reason=first.reason,
        first_offset=min((loss.first_offset for loss in stored), default=0),
        end_offset=max((loss.end_offset for loss in stored), default=0),
        count=first.count + second.count,
        at_us=second.at_us,
    )
