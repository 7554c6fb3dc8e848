"""A sink in memory that fails on demand, for tests of processors.

Owns: rows, what was counted of messages, and the failures that a test asks for. It outlives the
processors that use it, as a database does. Never: fails unasked.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.processors.sink import Committed, RowsRefusedError, Sink
from holdfast.processors.table import IdentifiedRow, Table


class MemorySink(Sink):
    """One database; any number of processors may have it at a time."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        """How many rows each commit that took place had."""
        self.attempts: Counter[str] = Counter()
        """What is counted, by a message's identity."""
        self.committed: Callable[[], None] = lambda: None
        """Called when a commit has taken place, before anybody is told."""
        self.refuses: Callable[[IdentifiedRow], bool] = lambda _row: False
        """Which rows it does not take."""
        self._rows: dict[str, dict[tuple[Any, ...], IdentifiedRow]] = {}
        self._failures: deque[Exception] = deque()
        self._failures_after: deque[Exception] = deque()

    # --- what a test asks for -------------------------------------------------------------------

    def fail(self, *errors: Exception) -> None:
        """The next calls raise these, one each, and do nothing."""
        self._failures.extend(errors)

    def fail_after_commit(self, *errors: Exception) -> None:
        """The next commits take place, and raise these nevertheless."""
        self._failures_after.extend(errors)

    def calm(self) -> None:
        """It fails no more."""
        self._failures.clear()
        self._failures_after.clear()
        self.committed = lambda: None

    def rows(self, table: str) -> list[Mapping[str, Any]]:
        """What the table has, in the order in which it came."""
        return [found.row for found in self._rows.get(table, {}).values()]

    def identities(self, table: str) -> list[str]:
        """The identities of its rows' messages, in the same order."""
        return [found.message_identity for found in self._rows.get(table, {}).values()]

    # --- what a processor calls -----------------------------------------------------------------

    def open(self, table: Table) -> None:
        """The table is there."""
        self._fail_if_asked()
        self._rows.setdefault(table.name, {})

    def commit(self, table: Table, rows: Sequence[IdentifiedRow]) -> Committed:
        """All rows or none."""
        self._fail_if_asked()
        if any(self.refuses(row) for row in rows):
            raise RowsRefusedError("a row that the test does not take")
        there = self._rows.setdefault(table.name, {})
        before = len(there)
        for row in rows:
            there.setdefault(_key(table, row), row)
            self.attempts.pop(row.message_identity, None)
        written = len(there) - before
        self.commits.append(len(rows))
        self.committed()
        if self._failures_after:
            raise self._failures_after.popleft()
        return Committed(written, len(rows) - written)

    def count_attempts(self, table: Table, identities: Sequence[str]) -> Mapping[str, int]:
        """One more for each."""
        del table
        self._fail_if_asked()
        self.attempts.update(identities)
        return {identity: self.attempts[identity] for identity in identities}

    def forget_attempts(self, table: Table, identities: Sequence[str]) -> None:
        """None for these."""
        del table
        self._fail_if_asked()
        for identity in identities:
            self.attempts.pop(identity, None)

    def close(self) -> None:
        """It stays as it is."""

    def _fail_if_asked(self) -> None:
        if self._failures:
            raise self._failures.popleft()


def _key(table: Table, row: IdentifiedRow) -> tuple[Any, ...]:
    if table.key:
        return tuple(row.row.get(name) for name in table.key)
    return row.message_identity, row.row_number
