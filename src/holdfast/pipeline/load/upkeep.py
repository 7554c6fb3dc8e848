"""Keep tables quick to read: fewer files, checkpoints, and no files that nobody names.

Owns: what is done to a table beside a running job, and what happens if both want the same file.
Never: changes a row, or takes the writer's lock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import CommitFailedError

from holdfast.pipeline.load.table import HISTORY, HISTORY_KEPT, StoredTable

ATTEMPTS = 5
"""A job that commits all the time wins some races; what was not done now is done next time."""


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
    before = len(table.files({}))
    compacted = _tried(lambda: table.opened().optimize.compact())
    delta = table.opened()
    if HISTORY not in delta.metadata().configuration:
        # Made before tables said how much of it is kept; what somebody has said himself stays.
        _tried(lambda: table.opened().alter.set_table_properties({HISTORY: HISTORY_KEPT}))
        delta = table.opened()
    delta.create_checkpoint()
    delta.cleanup_metadata()
    # With the files of commits that never came: they are in no version, so only a look at the disk
    # finds them.
    removed = delta.vacuum(
        retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return Upkeep(table.name, before, len(table.files({})), len(removed), compacted)


def _tried(work: Callable[[], Any]) -> bool:
    for _ in range(ATTEMPTS):
        try:
            work()
        except CommitFailedError:
            continue
        return True
    return False
