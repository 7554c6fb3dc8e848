"""What was measured, and the lines that the page of benchmarks shows of it."""

import json
import statistics
from dataclasses import dataclass
from typing import Any

from bench.macro.results import DIRECTORY as RESULTS

DIRECTORY = RESULTS / "recovery"

TARGET_S = 2.0


@dataclass(frozen=True)
class Recovered:
    """One run."""

    date: str  # UTC, ISO 8601, to the minute.
    commit: str
    machine: dict[str, Any]
    gigabytes: float
    messages: int
    sessions: int
    load_average: float
    """Of the minute in which it was measured: how many wanted a core."""
    accepted_s: list[float]
    """From the start of the process after kill -9 to a CONNACK."""
    delivered_s: list[float]
    """To the first message of a session's backlog."""
    processor_s: list[float]
    """Processor time up to the CONNACK: what is left of it where nothing else wants the cores."""
    read_s: list[float]
    """The part of it in which the log is read, as the broker logs it."""

    def text(self) -> str:
        """As a table in Markdown."""
        rows = (
            ("until it accepts a connection", self.accepted_s),
            ("until a session has its first message", self.delivered_s),
            ("processor time until it accepts one", self.processor_s),
            ("reading the log, as it says itself", self.read_s),
        )
        lines = ["| after kill -9 | median, s | least | greatest |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {title} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |"
            for title, times in rows
        ]
        return "\n".join(lines)


def newest() -> Recovered | None:
    """The newest run."""
    paths = sorted(DIRECTORY.glob("*.json"))
    return Recovered(**json.loads(paths[-1].read_text())) if paths else None
