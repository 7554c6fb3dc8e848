"""What was measured, read and written, and the lines that the page of benchmarks shows of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.beside.figures import (
    MAXIMUM_STEP_MS,
    P999_STEP_MS,
    Bound,
    Moment,
)
from bench.macro.results import DIRECTORY as RESULTS

DIRECTORY = RESULTS / "beside"
PARTIAL = RESULTS / "beside-partial.tmp"
"""Some of the lines: kept for a look, never rendered."""

HEADINGS = (
    "line", "what", "p50", "p99", "p999", "maximum", "PINGRESP, p999", "its maximum",
    "disk meanwhile", "machine stood still, p999", "longest", "step",
    "what others waited, ms, and other figures",
)  # fmt: skip


@dataclass(frozen=True)
class Played:
    """One line on one broker."""

    line: str
    title: str
    scale: int
    broker: str
    disk_alone_ms: float
    """The longest append and sync before the line and after it."""
    moments: list[Moment]
    bounds: list[Bound]
    ended: list[str]
    """Whose connections the broker ended, and what it did not answer in time."""
    is_probed: bool = True
    """False where a line is about the figures in `own_ms` only."""
    error: str | None = None

    @classmethod
    def read(cls, fields: dict[str, Any]) -> "Played":
        """What `asdict` has made of it."""
        moments = [Moment.read(moment) for moment in fields.pop("moments")]
        bounds = [Bound(**bound) for bound in fields.pop("bounds")]
        return cls(**fields, moments=moments, bounds=bounds)

    def rows(self) -> list[list[str]]:
        """A line for the load, and one for each moment."""
        name = self.line if self.scale == 1 else f"{self.line} x {self.scale}"
        who = "" if self.broker == "holdfast" else f", {self.broker}"
        head = [f"{name}{who}", self.title, *[""] * (len(HEADINGS) - 2)]
        if self.error:
            return [[*head[:-1], f"failed: {self.error}"]]
        return [
            [*head[:-1], "; ".join(self.ended)],
            *(self._row(moment) for moment in self.moments),
        ]

    def _row(self, moment: Moment) -> list[str]:
        own = "; ".join(self._own(name, value) for name, value in moment.own_ms.items())
        if not self.is_probed:
            return ["", f"- {moment.title}", *[""] * (len(HEADINGS) - 3), own]
        puback = moment.puback
        times = (puback.p50, puback.p99, puback.p999, puback.maximum)
        asked = (moment.ping.p999, moment.ping.maximum)
        step = (
            f"at most {P999_STEP_MS:g}, {MAXIMUM_STEP_MS + self.disk_alone_ms:.0f}:"
            f" {'yes' if moment.is_met(self.disk_alone_ms) else 'no'}"
        )
        shown = [shown_ms(time_ms) for time_ms in (*times, *asked, moment.disk_meanwhile_ms)]
        stood = moment.standstill
        shown += ["", ""] if stood is None else [shown_ms(stood.p999), shown_ms(stood.maximum)]
        return ["", f"- {moment.title} ({moment.seconds:.1f} s)", *shown, step, own]

    def _own(self, name: str, value: float) -> str:
        said = f"{name}: {shown_ms(value)}"
        for bound in self.bounds:
            if bound.figure == name:
                said += f" ({bound}: {'yes' if bound.is_met(value) else 'no'})"
        return said


def shown_ms(value: float) -> str:
    """With as many digits as matter."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Result:
    """One run."""

    date: str  # UTC, ISO 8601, to the minute.
    commit: str
    machine: dict[str, Any]
    load_average: float
    """Of the minute after it: how many wanted a core."""
    brokers: dict[str, str]
    played: list[Played]
    again: dict[str, str] = field(default_factory=dict)
    """Lines that were measured once more since, and at which commit."""

    def with_lines_of(self, other: "Result") -> "Result":
        """This result with the lines of another in place of its own; it says of which commit."""
        found = {(played.line, played.broker): played for played in other.played}
        played = [found.get((each.line, each.broker), each) for each in self.played]
        again = self.again | {line: other.commit for line, _ in found}
        return replace(self, played=played, again=again)

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Reads what `write` has written."""
        fields = json.loads(path.read_text())
        return cls(played=[Played.read(played) for played in fields.pop("played")], **fields)

    @property
    def file_name(self) -> str:
        """Sorts by time."""
        return f"{self.date.replace(':', '')}-{self.commit.rstrip('+')}.json"

    def text(self) -> str:
        """As a table in Markdown."""
        rows = [row for played in self.played for row in played.rows()]
        lines = [HEADINGS, ["---"] * len(HEADINGS), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """For a terminal."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def newest() -> Result | None:
    """The newest complete run."""
    paths = sorted(DIRECTORY.glob("*.json"))
    return Result.read(paths[-1]) if paths else None
