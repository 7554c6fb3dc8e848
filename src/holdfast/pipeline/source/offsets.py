"""The offset in checkpoints: one number and the log's epoch.

Owns: its form and its version, and what is refused when a checkpoint comes back.

Invariant: an offset that is accepted is of this log, and the log reaches it.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.reading.log import Extent

OFFSET_VERSION = 1


class CheckpointError(Exception):
    """The offset in the checkpoint does not belong to this log."""


class DataLossError(Exception):
    """Records between the last read and the next are not there any more."""


def format_offset(epoch: str, offset: int) -> dict[str, Any]:
    """An offset as it stands in a checkpoint."""
    return {"v": OFFSET_VERSION, "epoch": epoch, "o": offset}


def parse_offset(document: Mapping[str, Any], extent: Extent) -> int:
    """The number in a checkpoint's offset, if it is of this log and the log still reaches it."""
    if document.get("v") != OFFSET_VERSION:
        raise CheckpointError(
            f"holdfast data source: the checkpoint's offset has version {document.get('v')!r}; "
            f"this program reads version {OFFSET_VERSION}"
        )
    check_epoch(document["epoch"], extent.epoch, "the checkpoint")
    offset = int(document["o"])
    if offset > extent.end:
        raise DataLossError(
            f"holdfast data source: the checkpoint is at offset {offset}, but the log ends at "
            f"{extent.end}: its last records are gone"
        )
    return offset


def check_epoch(epoch: str, found: str, owner: str) -> None:
    """Refuses to mix two logs: their offsets mean different messages."""
    if epoch != found:
        raise CheckpointError(
            f"holdfast data source: {owner} belongs to the log with epoch {epoch}, but this is the "
            f"log with epoch {found}. A new log needs a new checkpoint"
        )
