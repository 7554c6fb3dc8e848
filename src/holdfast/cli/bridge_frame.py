"""One frame of `holdfast bridge watch`, which `holdfast top` shows too.

Owns: what is put where. Never: counts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast import system
from holdfast.cli.record_text import printable
from holdfast.core.settings import show_duration
from holdfast.core.units import SECOND_US

if TYPE_CHECKING:
    from rich.table import Table

COUNTS = ("waiting", "buffered", "in_flight", "sent", "repeated", "acknowledged", "received")


def frame(bridges: Sequence[dict[str, Any]]) -> "Table":
    """All of them, a row each."""
    # Imported here, since the other actions draw nothing.
    from rich.table import Table
    from rich.text import Text

    table = Table(title="bridges", box=None, title_justify="left")
    for heading in ("bridge", "state"):
        table.add_column(heading)
    for heading in (*COUNTS, "drained in", "lost"):
        table.add_column(heading.replace("_", " "), justify="right")
    for row in bridges:
        drained = row["drained_in_s"]
        table.add_row(
            Text(printable(row["name"])),
            Text(_state(row)),
            *(f"{row[name]:,}" for name in COUNTS),
            "-" if drained is None else show_duration(drained),
            f"{sum(row['lost'].values()):,}",
        )
    return table


def _state(row: dict[str, Any]) -> str:
    """With how long it waits, and why."""
    next_us = row["next_attempt_at_us"]
    if next_us is None:
        return str(row["state"])
    left_s = max(next_us - system.now_us(), 0) // SECOND_US
    return f"{row['state']}, next attempt in {left_s} s: {printable(row['last_error'])}"
