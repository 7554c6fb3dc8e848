"""From samples to figures, and from figures to whether a step is reached. Nothing else."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

P999_STEP_MS = 20.0
MAXIMUM_STEP_MS = 50.0
"""Plus what the disk alone shows in the same run."""

P999_SAMPLES = 1_000
"""A thousandth of fewer is less than one of them: of a short moment only the maximum is judged."""

Sample = tuple[int, int]
"""When it began and how long it took, in nanoseconds."""


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """The least value that this share of all do not pass; 0 where there is none."""
    if not sorted_values:
        return 0.0
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


@dataclass(frozen=True)
class Spread:
    """What samples come to, in milliseconds."""

    count: int
    p50: float
    p99: float
    p999: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[Sample], began_ns: int = 0, ended_ns: int = 1 << 63) -> "Spread":
        """Of those that began within this time."""
        took = sorted(took / 1e6 for at, took in samples if began_ns <= at < ended_ns)
        p50, p99, p999, maximum = (quantile(took, share) for share in (0.5, 0.99, 0.999, 1.0))
        return cls(len(took), p50, p99, p999, maximum)


@dataclass(frozen=True)
class Moment:
    """A part of a line: what the prober saw in it, and what somebody else was answered."""

    title: str
    seconds: float
    puback: Spread
    ping: Spread
    late_ms: float
    """The latest that the prober itself asked: the machine, not the broker."""
    disk_meanwhile_ms: float
    """The longest append and sync of somebody else on the same disk in this time."""
    own_ms: dict[str, float]
    """How long those waited that this part is about, by what they asked."""
    standstill: Spread | None = None
    """How long the machine itself stood still in this time; `None` where that is not known."""

    @classmethod
    def read(cls, fields: dict[str, Any]) -> "Moment":
        """A moment that `fields` has written."""
        known = [name for name in ("puback", "ping", "standstill") if fields.get(name)]
        return cls(**{**fields, **{name: Spread(**fields[name]) for name in known}})

    def fields(self) -> dict[str, Any]:
        """As it is written."""
        return asdict(self)

    def is_met(self, disk_alone_ms: float) -> bool:
        """Whether the prober's steps are reached."""
        if self.puback.maximum > MAXIMUM_STEP_MS + disk_alone_ms:
            return False
        return self.puback.count < P999_SAMPLES or self.puback.p999 <= P999_STEP_MS


@dataclass(frozen=True)
class Bound:
    """A step for one figure that a line is about."""

    figure: str
    at_most: float | None = None
    at_least: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether the step is reached."""
        if self.at_least is not None and value < self.at_least:
            return False
        return self.at_most is None or value <= self.at_most

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}"
