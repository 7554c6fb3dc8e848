"""A run's result: where, what and when, and every single measurement; read, written, summed up."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.macro.machine import ROOT
from bench.macro.measurement import Measurement
from bench.macro.rows import FORWARDER, REFERENCE, Allowed, Line, Row

DIRECTORY = ROOT / "bench" / "results"

FORMAT = 1


@dataclass(frozen=True)
class Spread:
    """The median of some figures with the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread | None":
        """None where nothing was measured."""
        if not figures:
            return None
        return cls(statistics.median(figures), min(figures), max(figures))

    @property
    def noise(self) -> float:
        """The range as a share of the median."""
        return (self.greatest - self.least) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Result:
    """Everything that a run measured; all that is shown follows from it."""

    date: str  # UTC, ISO 8601, to the minute.
    commit: str
    machine: dict[str, Any]
    brokers: dict[str, str]
    options: dict[str, Any]
    measurements: list[Measurement]

    def write(self, path: Path) -> None:
        """Write the result as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read a result that `write` has written."""
        fields = json.loads(path.read_text())
        if fields.pop("format") != FORMAT:
            raise ValueError(f"{path} has another format than {FORMAT}")
        measurements = [Measurement(**measurement) for measurement in fields.pop("measurements")]
        return cls(measurements=measurements, **fields)

    def with_rows_of(self, other: "Result") -> "Result":
        """This result with the rows of another in place of its own; it says of which commit, and
        which brokers were beside."""
        rows = {measurement.row for measurement in other.measurements}
        kept = [measurement for measurement in self.measurements if measurement.row not in rows]
        again = self.options.get("again", {}) | dict.fromkeys(sorted(rows), other.commit)
        options = self.options | {"again": again}
        return replace(
            self,
            brokers=self.brokers | other.brokers,
            options=options,
            measurements=[*kept, *other.measurements],
        )

    @property
    def file_name(self) -> str:
        """Sorts by time."""
        return f"{self.date.replace(':', '')}-{self.commit.rstrip('+')}.json"

    def figures(self, row: str, broker: str, figure: str) -> dict[int, float]:
        """One figure by repetition."""
        return {
            measurement.repetition: measurement.figures[figure]
            for measurement in self.measurements
            if (measurement.row, measurement.broker) == (row, broker)
            and figure in measurement.figures
        }

    def spread(self, row: str, broker: str, figure: str) -> Spread | None:
        """One figure over the repetitions."""
        return Spread.of(list(self.figures(row, broker, figure).values()))

    def ratio(self, row: str, figure: str, peer: str = REFERENCE) -> Spread | None:
        """Holdfast's figure to a peer's in the same repetition."""
        return self._ratio(self.figures(row, "holdfast", figure), self.figures(row, peer, figure))

    def ratio_to_row(self, row: str, other: str, figure: str) -> Spread | None:
        """Holdfast's figure to its own of another row in the same repetition."""
        return self._ratio(
            self.figures(row, "holdfast", figure), self.figures(other, "holdfast", figure)
        )

    def ratio_to_allowed(self, row: str, figure: str, allowance: Allowed) -> Spread | None:
        """Holdfast's figure to the bare forwarder's with what a broker may take beyond it."""
        syncs = self.figures(row, "holdfast", "fdatasync_us")
        forwarder = self.figures(allowance.of_row or row, FORWARDER, figure)
        allowed = {
            repetition: forwarder[repetition] + allowance.syncs * syncs[repetition] + allowance.us
            for repetition in forwarder.keys() & syncs.keys()
        }
        return self._ratio(self.figures(row, "holdfast", figure), allowed)

    @staticmethod
    def _ratio(ours: dict[int, float], theirs: dict[int, float]) -> Spread | None:
        both = [repetition for repetition in ours if theirs.get(repetition)]
        return Spread.of([ours[repetition] / theirs[repetition] for repetition in both])

    def steps(self, row: Row, line: Line) -> list[tuple[Spread, bool]]:
        """The ratios or figures that the line's targets are about, and whether each is met; those
        that were not measured are left out."""
        found = []
        for target in line.targets:
            if target.of_itself:
                ratio = self._shown(row, line)
            elif target.of_allowed:
                ratio = self.ratio_to_allowed(row.name, line.figure, target.of_allowed)
            elif target.of_row:
                ratio = self.ratio_to_row(row.name, target.of_row, line.figure)
            else:
                ratio = self.ratio(row.name, line.figure, target.of_peer)
            if ratio:
                found.append((ratio, target.is_met(ratio.median)))
        return found

    def _shown(self, row: Row, line: Line) -> Spread | None:
        figures = self.figures(row.name, "holdfast", line.figure).values()
        return Spread.of([figure * line.scale for figure in figures])

    @property
    def peer(self) -> str:
        """The reference's name; empty where it was not measured."""
        return REFERENCE if REFERENCE in self.brokers else ""

    @property
    def other_peers(self) -> list[str]:
        """Who else was measured."""
        return [name for name in self.brokers if name not in ("holdfast", REFERENCE)]

    @property
    def failures(self) -> list[Measurement]:
        """Measurements without figures."""
        return [measurement for measurement in self.measurements if measurement.error]


def newest() -> Result | None:
    """The newest complete result."""
    paths = sorted(DIRECTORY.glob("*.json"))
    return Result.read(paths[-1]) if paths else None
