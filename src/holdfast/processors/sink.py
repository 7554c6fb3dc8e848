"""Where rows go: what a sink has to do, in words that any database can keep.

A sink is used by one thread at a time, which it may block. `sinks/` has two; one's own is a class
with `open`, `commit` and `close`, and with the other two where it is to find out which message ends
the process.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from holdfast.processors.table import IdentifiedRow, Table

ATTEMPTS_REMEMBERED_MAXIMUM: Final = 100_000
"""Messages whose attempts are counted in memory: as many as are open at a time, and more. What was
counted first is forgotten first."""


class SinkAwayError(Exception):
    """It cannot take anything now (gone, locked, full, slow); the same batch may do later."""


class RowsRefusedError(Exception):
    """It does not take these rows, and will not later; nothing of the batch is written."""


class SinkUnfitError(Exception):
    """It cannot be used at all as it is (a newer schema, no permission); somebody has to act."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of the rows of one commit."""

    written: int
    repeats: int
    """Rows that were there already."""


class Sink(ABC):
    """Tables in one database."""

    @abstractmethod
    def open(self, table: Table) -> None:
        """Afterwards the table is there, with all columns of its version. May be called again after
        `SinkAwayError`. Raises `SinkAwayError` or `SinkUnfitError`."""

    @abstractmethod
    def commit(self, table: Table, rows: Sequence[IdentifiedRow]) -> Committed:
        """Writes rows in one transaction; afterwards they are durable, each once, and what was
        counted of their messages' attempts is forgotten. Raises `SinkAwayError` (whether they are
        written may be unknown: the same rows may come again) or `RowsRefusedError`."""

    def count_attempts(self, table: Table, identities: Sequence[str]) -> Mapping[str, int]:
        """Counts one more attempt for each message, and returns how many there have been. A sink
        that has this method of its own counts durably; this one does in memory, so that nothing is
        known of an attempt with which the process ended. Raises `SinkAwayError`."""
        counted = self._attempts
        for identity in identities:
            key = (table.name, identity)
            counted[key] = counted.get(key, 0) + 1
        while len(counted) > ATTEMPTS_REMEMBERED_MAXIMUM:
            del counted[next(iter(counted))]
        return {identity: counted.get((table.name, identity), 1) for identity in identities}

    def forget_attempts(self, table: Table, identities: Sequence[str]) -> None:
        """What was counted for these messages is gone. Raises `SinkAwayError`."""
        for identity in identities:
            self._attempts.pop((table.name, identity), None)

    @abstractmethod
    def close(self) -> None:
        """Afterwards nothing of it is open. Called only where `open` has returned before."""

    @cached_property
    def _attempts(self) -> dict[tuple[str, str], int]:
        # Whoever makes a class of this need not call its `__init__`.
        return {}
