"""What was measured of bridges, and the lines that the page of benchmarks shows of it."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.macro.results import DIRECTORY as RESULTS
from bench.pipeline.result import HEAD, Measured

DIRECTORY = RESULTS / "bridge"
PARTIAL = RESULTS / "bridge-partial.tmp"
"""Some of the lines: kept for a look, never rendered."""


@dataclass(frozen=True)
class Result:
    """One run."""

    date: str  # UTC, ISO 8601, to the minute.
    commit: str
    machine: dict[str, Any]
    repetitions: int
    seconds: float
    """What each repetition measured, behind its warm-up."""
    load_average: float
    """Of the minute in which it began: how many wanted a core."""
    lines: dict[str, list[Measured]]
    """Figures by the name of the line that gave them."""
    again: dict[str, str] = field(default_factory=dict)
    """Lines that were measured once more since, and at which commit."""

    def with_lines_of(self, other: "Result") -> "Result":
        """This result with the lines of another in place of its own; it says of which commit."""
        again = self.again | dict.fromkeys(other.lines, other.commit)
        return replace(self, lines=self.lines | other.lines, again=again)

    def text(self) -> str:
        """As a table in Markdown."""
        rows = [measured.row() for line in self.lines.values() for measured in line]
        return "\n".join([*HEAD, *rows])

    def write(self, path: Path | None = None) -> Path:
        """Keeps it, under a name that sorts by time where no other is given; returns where."""
        name = f"{self.date.replace(':', '')}-{self.commit.rstrip('+')}.json"
        path = path or DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def newest() -> Result | None:
    """The newest complete run."""
    paths = sorted(DIRECTORY.glob("*.json"))
    if not paths:
        return None
    fields = json.loads(paths[-1].read_text())
    told = fields.pop("lines").items()
    lines = {name: [Measured(**measured) for measured in line] for name, line in told}
    return Result(**fields, lines=lines)
