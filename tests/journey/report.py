"""What a run found, for people and as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

SHOWN_MAXIMUM = 10


@dataclass
class Report:
    """What a run of kills found."""

    seed: int
    rounds: int
    kills: dict[str, int] = field(default_factory=dict)
    published: int = 0
    rows: int = 0
    log_begins_at: int = 0
    """The first offset that the log still had at the end: below it retention was at work."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    kept: str = ""
    """Where the data is of a run that failed."""

    @property
    def holds(self) -> bool:
        """True if nothing was missing, doubled or out of order."""
        return not self.problems

    def killed(self, part: str) -> None:
        """Counts one more of these."""
        self.kills[part] = self.kills.get(part, 0) + 1

    def text(self) -> str:
        """For people."""
        kills = ", ".join(f"{part} {times}" for part, times in sorted(self.kills.items()))
        lines = [
            f"{self.rounds} rounds in {self.seconds:.0f} s, seed {self.seed}",
            f"  killed: {kills}",
            f"  published: {self.published}",
            f"  rows in the table: {self.rows}",
            f"  retention has taken everything below offset {self.log_begins_at}",
            *(f"  {problem}" for problem in self.problems[:SHOWN_MAXIMUM]),
        ]
        if len(self.problems) > SHOWN_MAXIMUM:
            lines.append(f"  and {len(self.problems) - SHOWN_MAXIMUM} more")
        if self.kept:
            lines.append(f"  the data is kept in {self.kept}")
        command = f"python -m tests.journey --rounds {self.rounds} --seed {self.seed}"
        return "\n".join([*lines, f"  repeat with: {command}"])

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps({"holds": self.holds, **asdict(self)}, indent=1) + "\n")
