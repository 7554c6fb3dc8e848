"""What was measured, and the lines that the page of benchmarks shows of it."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.macro.results import DIRECTORY as RESULTS

DIRECTORY = RESULTS / "pipeline"

HEAD = ("| what | here | beside it | ratio | step | met |", "|---|---|---|---|---|---|")
"""Of a table of such lines, in Markdown."""


@dataclass(frozen=True)
class Measured:
    """One line: a figure of ours, what it is compared with, and the step."""

    title: str
    unit: str
    ours: float
    peer: str = ""
    """What it is compared with; nothing where the figure itself is bounded."""
    theirs: float = 0.0
    at_least: float | None = None
    """The least ratio of ours to theirs, or ..."""
    at_most: float | None = None
    """... the most that ours may be, or may be beyond theirs, or ..."""
    at_most_times: float | None = None
    """... the greatest ratio."""

    @property
    def ratio(self) -> float | None:
        """Ours to theirs."""
        return self.ours / self.theirs if self.theirs else None

    @property
    def is_met(self) -> bool:
        """True if the step holds."""
        if self.at_least is not None:
            return self.ratio is not None and self.ratio >= self.at_least
        if self.at_most_times is not None:
            return self.ratio is not None and self.ratio <= self.at_most_times
        return self.at_most is None or self.ours - self.theirs <= self.at_most

    def row(self) -> str:
        """As a row of a table in Markdown."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        theirs = "" if not self.peer else f"{_shown(self.theirs)} ({self.peer})"
        if self.at_least is not None:
            step = f"at least {self.at_least:g}"
        elif self.at_most_times is not None:
            step = f"at most {self.at_most_times:g}"
        elif self.at_most is not None:
            beyond = " beyond it" if self.peer else ""
            step = f"at most {self.at_most:g} {self.unit}{beyond}"
        else:
            step = ""
        met = ("yes" if self.is_met else "no") if step else ""
        ours = f"{_shown(self.ours)} {self.unit}"
        return f"| {self.title} | {ours} | {theirs} | {ratio} | {step} | {met} |"


@dataclass(frozen=True)
class Result:
    """One run."""

    date: str  # UTC, ISO 8601, to the minute.
    commit: str
    machine: dict[str, Any]
    rows: int
    load_average: float
    """Of the minute in which it began: how many wanted a core."""
    lines: list[Measured]
    again: dict[str, str] = field(default_factory=dict)
    """Lines that were measured at another commit, and at which."""

    def with_lines_of(self, other: "Result") -> "Result":
        """This result with the lines of another in place of its own, or behind them."""
        fresh = {line.title: line for line in other.lines}
        lines = [fresh.pop(line.title, line) for line in self.lines]
        told = {line.title: other.commit for line in other.lines}
        again = {title: at for title, at in (self.again | told).items() if at != self.commit}
        return replace(self, lines=[*lines, *fresh.values()], again=again)

    def text(self) -> str:
        """As a table in Markdown."""
        return "\n".join([*HEAD, *(line.row() for line in self.lines)])

    def write(self) -> Path:
        """Keeps it; returns where."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        name = f"{self.date.replace(':', '')}-{self.commit.rstrip('+')}.json"
        (DIRECTORY / name).write_text(json.dumps(asdict(self), indent=1) + "\n")
        return DIRECTORY / name


def newest() -> Result | None:
    """The newest run."""
    paths = sorted(DIRECTORY.glob("*.json"))
    if not paths:
        return None
    fields = json.loads(paths[-1].read_text())
    return Result(**{**fields, "lines": [Measured(**line) for line in fields["lines"]]})


def _shown(figure: float) -> str:
    if figure >= 100_000:
        return f"{figure / 1e6:.2f} M"
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"
