"""Party numbers: who publishes or owns a queue, as the log and the kernel know it.

Owns: which numbers have been given out. Never: gives one out twice while anybody may know it.

Invariant: a durable number is below the counter on record before it is given out.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import PARTY_COUNTER, Table
from holdfast.kernel import TRANSIENT_PARTY

BROKER_PARTY: Final = TRANSIENT_PARTY
"""Who publishes what the broker itself has to say, as the log sees it."""
BLOCK = 1_024
"""Numbers set aside by one control record, so that a new session costs one record, not two."""


class Parties:
    """Gives out party numbers."""

    def __init__(self, records: ControlRecords) -> None:
        self._records = records
        self._next = int(records.get(Table.COUNTERS, PARTY_COUNTER) or b"1")
        self._block_end = self._next
        self._transient = _transient()

    def durable(self, now_us: int) -> int:
        """A number for what outlives its connection."""
        party = self._next
        assert party < TRANSIENT_PARTY, "party numbers are used up"
        if party >= self._block_end:
            self._block_end = party + BLOCK
            value = str(self._block_end).encode()
            self._records.put(Table.COUNTERS, PARTY_COUNTER, value, now_us)
        self._next += 1
        return party

    def transient(self) -> int:
        """A number for what ends with its connection."""
        return next(self._transient)


def _transient() -> Iterator[int]:
    # The numbers come round after two thousand million connections; none can still be in use then.
    while True:
        yield from range(BROKER_PARTY + 1, 2**32)
