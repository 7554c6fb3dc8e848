"""Keep tables quick to read: fewer files, checkpoints, and nothing that nobody names.

Owns: what is done to a table beside whoever fills it, how often, and what happens if both want the
same file.
Never: changes a row, or takes the writer's lock.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from holdfast import system
from holdfast.pipeline.load.files import remove_empty_folders
from holdfast.pipeline.load.table import HISTORY, HISTORY_KEPT, NAMED_BEFORE, StoredTable
from holdfast.pipeline.load.warehouse import Warehouse

ATTEMPTS = 5
"""A job that commits all the time wins some races; what was not done now is done next time."""
FILES_TO_COMPACT = 64
"""So many files more than were left the last time, and a run puts those of a table together. A
query that commits each second makes 86 400 a day, and whoever opens a table lists them all: 2.4 s
with those of a day, at every step of every job."""
COMPACTED_BYTES = 32 * 1024 * 1024
"""As large a run lets files become by that: the file that grows is written again with each 64."""
SWEEP_S = 3_600
"""How often a run removes what nobody names any more: to find it, each file is looked at."""
SWEPT = "swept"
"""A file whose time says when that was done last, for runs that are short."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done to one table."""

    table: str
    files_before: int
    files_after: int
    removed: int
    """Files that nobody named any more."""
    compacted: bool
    """False if a job was quicker each time; the next time does it."""


def maintain(table: StoredTable, keep_hours: int) -> Upkeep:
    """Compacts, writes a checkpoint, and removes files that nobody has named for so long, and
    commits that are too old to go back to."""
    before = _files(table.opened())
    compacted = _tried(lambda: table.opened().optimize.compact())
    if HISTORY not in table.opened().metadata().configuration:
        # Made before tables said how much of it is kept; what somebody has said himself stays.
        _tried(lambda: table.opened().alter.set_table_properties({HISTORY: HISTORY_KEPT}))
    removed = _swept(table, keep_hours)
    return Upkeep(table.name, before, _files(table.opened()), removed, compacted)


@dataclass
class StandingUpkeep:
    """What a run does to its tables as it fills them, so that they stay as quick as they were
    however long it goes on, and nobody has to call `maintain`."""

    warehouse: Warehouse
    names: Collection[str]
    keep_hours: int
    compacting: Callable[[str, int], None] = lambda table, files: None
    """Told the table and its files, before that takes its time."""
    _left: dict[str, int] = field(default_factory=dict)
    """The files that a table had when it was compacted last."""

    def begin(self) -> None:
        """Call it while nobody writes the tables: a commit beside a change of properties fails."""
        told = f"interval {self.keep_hours} hours"
        for table in self._tables():
            if table.opened().metadata().configuration.get(NAMED_BEFORE) != told:
                table.opened().alter.set_table_properties({NAMED_BEFORE: told})
        self.look()

    def look(self) -> None:
        """Compacts what has become many files, and once an hour removes what nobody names."""
        for table in self._tables():
            files = _files(table.opened())
            if files >= self._left.get(table.name, 0) + FILES_TO_COMPACT:
                self.compacting(table.name, files)
                if _tried(partial(_compact, table)):
                    self._left[table.name] = _files(table.opened())
        swept = self.warehouse.directory / SWEPT
        if not swept.exists() or system.now_us() / 1e6 - swept.stat().st_mtime >= SWEEP_S:
            for table in self._tables():
                _swept(table, self.keep_hours)
            swept.touch()

    def _tables(self) -> list[StoredTable]:
        tables = (self.warehouse.table(name) for name in self.names)
        return [table for table in tables if table.exists()]


def _compact(table: StoredTable) -> None:
    table.opened().optimize.compact(target_size=COMPACTED_BYTES)


def _files(delta: DeltaTable) -> int:
    return int(pa.table(delta.get_add_actions()).num_rows)


def _swept(table: StoredTable, keep_hours: int) -> int:
    """Removes files that nobody has named for so long, with those of commits that never came, and
    commits that are too old to go back to; returns how many files."""
    delta = table.opened()
    delta.create_checkpoint()
    delta.cleanup_metadata()
    # What is in no version is found by a look at the disk alone.
    removed = delta.vacuum(
        retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    remove_empty_folders(table.path)
    return len(removed)


def _tried(work: Callable[[], Any]) -> bool:
    for _ in range(ATTEMPTS):
        try:
            work()
        except CommitFailedError:
            continue
        return True
    return False
