"""Cursors: what is kept for readers that have their place here."""

from dataclasses import dataclass

from holdfast.core.settings import duration, setting, size
from holdfast.core.units import CENTURY_S, MIB


@dataclass(frozen=True, kw_only=True)
class CursorsSection:
    """The table `cursor`."""

    cursor_unreleased_age_s: int = setting(
        "cursor.unreleased_age_s",
        duration(1, CENTURY_S),
        "30d",
        """What a cursor has not released is kept beyond log.retention_age_s, but not when it is
        older than this. What it loses by that is in the loss ledger.""",
        reloadable=True,
    )
    cursor_unreleased_bytes: int = setting(
        "cursor.unreleased_bytes",
        size(1 * MIB, 2**50),
        "4GiB",
        """And about so many bytes of it, the newest: a pipeline that nobody looks after must not
        fill the disk.""",
        reloadable=True,
    )
    cursor_hold_timeout_s: int = setting(
        "cursor.hold_timeout_s",
        duration(5, 86_400),
        "2m",
        """How long a cursor is held for a reader that asks for nothing any more. As long as that
        another reader is refused after the first one has died without a word, and as long a batch
        may take that asks for nothing.""",
        reloadable=True,
    )
