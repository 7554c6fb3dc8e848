"""What a run of kills found, for people and as JSON."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

SHOWN_MAXIMUM = 5
"""Violations of one kind that are shown; the rest are counted."""


@dataclass
class Report:
    """What a run found."""

    seed: int
    rounds: int
    kills: int = 0
    """Those while it started among them."""
    legs: int = 0
    acknowledged: int = 0
    delivered: int = 0
    greeted: int = 0
    """Fresh subscriptions that were asked what is retained."""
    recoveries_s: list[float] = field(default_factory=list)
    """Time until the port takes connections again, by kill."""
    violations: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    """Messages that had not arrived when time was up, by subscriber."""
    seconds: float = 0.0
    kept: str = ""
    """Where the data of a leg that failed is."""

    @property
    def holds(self) -> bool:
        """True if nothing was violated and everything has arrived."""
        return not self.lacking and not any(self.violations.values())

    def add(self, violations: dict[str, list[str]]) -> None:
        """Notes what a leg's questions found."""
        for name, found in violations.items():
            self.violations.setdefault(name, []).extend(found)

    def recovery(self) -> tuple[float, float]:
        """Median and maximum, in seconds."""
        return statistics.median(self.recoveries_s), max(self.recoveries_s)

    def text(self) -> str:
        """For people."""
        p50, longest = self.recovery()
        lines = [
            f"{self.rounds} rounds, {self.kills} kills in {self.seconds:.0f} s, seed {self.seed}",
            f"  acknowledged: {self.acknowledged}",
            f"  delivered: {self.delivered}",
            f"  fresh subscriptions: {self.greeted}",
            *(f"  {name}: {len(found)}" for name, found in self.violations.items()),
            f"  recovery: p50 {p50:.3f} s, maximum {longest:.3f} s",
        ]
        lines += [f"  {name} still lacks {count}" for name, count in self.lacking.items()]
        for name, found in self.violations.items():
            lines += [f"  {name}: {violation}" for violation in found[:SHOWN_MAXIMUM]]
        if self.kept:
            lines.append(f"  the data is kept in {self.kept}")
        command = f"python -m tests.crash --rounds {self.rounds} --seed {self.seed}"
        return "\n".join([*lines, f"  repeat with: {command}"])

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        p50, longest = self.recovery()
        figures = {"holds": self.holds, "recovery_p50_s": p50, "recovery_maximum_s": longest}
        path.write_text(json.dumps(figures | asdict(self), indent=1) + "\n")
