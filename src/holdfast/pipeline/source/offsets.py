"""The offset in checkpoints: one number, the log's epoch and the selection that was read.

Owns: its form and its version, and what is refused when a checkpoint comes back.

Invariant: an offset that is accepted is of this log, and the log reaches it. A log that was
restored from a copy has the same epoch and gives offsets again: it is known by when the message
before the offset was stored.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from holdfast.core.units import SECOND_US
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import Extent

OFFSET_VERSION = 1
BEFORE_AT = "beforeAtUs"
SELECTION = "selection"
SELECTION_SHOWN = 500
"""Characters of a selection in an offset. A batch writes its offset twice, and ten thousand topics
are megabytes; of a longer one its digest stands for the rest."""


class CheckpointError(Exception):
    """The offset in the checkpoint does not belong to this log."""


class DataLossError(Exception):
    """Records between the last read and the next are not there any more."""


def format_offset(epoch: str, offset: int, before_at_us: int | None = None) -> dict[str, Any]:
    """An offset as it stands in a checkpoint, with when the message before it was stored."""
    told: dict[str, Any] = {"v": OFFSET_VERSION, "epoch": epoch, "o": offset}
    return told if before_at_us is None else {**told, BEFORE_AT: before_at_us}


def format_selection(criteria: Criteria) -> str:
    """What a stream reads, as it stands in its offsets: the same text for the same filters, in
    whatever order and however often they are named."""
    if criteria.pattern is not None:
        told = f"subscribePattern {criteria.pattern}"
    else:
        told = f"subscribe {','.join(sorted(set(criteria.filters)))}"
    if len(told) <= SELECTION_SHOWN:
        return told
    digest = sha256(told.encode()).hexdigest()
    return f"{told[:SELECTION_SHOWN]}... ({len(told)} characters, SHA-256 {digest})"


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


def check_history(document: Mapping[str, Any], before_at_us: int | None) -> None:
    """Refuses a log that has another message before the checkpoint's offset than was read there, as
    far as both are known."""
    known = document.get(BEFORE_AT)
    if known is not None and before_at_us is not None and known != before_at_us:
        raise CheckpointError(
            f"holdfast data source: {restored_text(int(document['o']) - 1, known, before_at_us)}."
            " Begin anew, with a new checkpoint and new tables"
        )


def restored_text(offset: int, known_us: int, found_us: int) -> str:
    """What there is to say of a log that has another message with an offset than was read."""
    return (
        f"the message with offset {offset} that was read was stored at {_shown(known_us)}, and the"
        f" one in this log at {_shown(found_us)}: the log was restored from a copy, and has given"
        " offsets again. What was read from behind the end of that copy is not in it, and other"
        " messages are in its place"
    )


def selection_change(document: Mapping[str, Any], selection: str) -> str | None:
    """What it means to go on from a checkpoint that was made with another selection; `None` if it
    is the same, or the checkpoint does not say."""
    known = document.get(SELECTION, selection)
    if known == selection:
        return None
    return (
        f"the checkpoint was made with '{known}', and the query has '{selection}': it goes on at"
        f" offset {int(document['o'])}, and what its new topics had before that is not read"
    )


def _shown(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / SECOND_US, UTC).isoformat(timespec="microseconds")


def check_epoch(epoch: str, found: str, owner: str) -> None:
    """Refuses to mix two logs: their offsets mean different messages."""
    if epoch != found:
        raise CheckpointError(
            f"holdfast data source: {owner} belongs to the log with epoch {epoch}, but this is the "
            f"log with epoch {found}. A new log needs a new checkpoint"
        )
