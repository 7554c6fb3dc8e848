"""What a simulated run makes difficult, as one value.

Owns: the list of hardships and how a seed draws them.
Never: applies one; the loop, the network, the clock and the disk read their own fields.

Invariants:
1. The same random generator state gives the same hardships.
2. Each hardship is entirely absent from about half of the runs: faults that always come together
   hide one another.
"""

from dataclasses import dataclass, fields
from random import Random


@dataclass(frozen=True, slots=True)
class Hardships:
    """Zero means that a hardship is absent."""

    delay_s: float = 0.0
    """Mean time of a piece of bytes on its way, each way."""
    split_bytes: int = 0
    """The largest piece in which bytes travel."""
    reset_after_s: float = 0.0
    """Mean life of a connection before the network resets it."""
    half_open_after_s: float = 0.0
    """Mean life of a connection before it falls silent without telling either end."""
    slow_link_bytes_per_s: int = 0
    """Rate of the slow connections; one in four is slow."""
    executor_latency_s: float = 0.0
    """Mean time that work handed to a thread takes."""
    shuffle: bool = False
    """Runnable tasks take their steps in a seeded order."""
    clock_drift_ppm: int = 0
    """How much faster the machine's wall clock runs than the loop's."""
    clock_step_after_s: float = 0.0
    """Mean time between steps of the wall clock, backwards or forwards."""
    power_cut_after_s: float = 0.0
    """Mean time between power cuts of the broker's machine."""
    disk_latency_s: float = 0.0
    """Mean time from the wish to commit to the end of the commit."""
    failed_sync_after_s: float = 0.0
    """Mean time between failures of a sync."""
    bit_flip_after_s: float = 0.0
    """Mean time between bits that turn in what the disk has kept for long."""
    small_disk_bytes: int = 0
    """The size of a disk that fills up; it is enlarged when the faults stop."""

    def describe(self) -> str:
        """The hardships that are present."""
        present = (field.name for field in fields(self) if getattr(self, field.name))
        return ", ".join(f"{name}={getattr(self, name):g}" for name in present) or "none"


def draw_hardships(random: Random) -> Hardships:
    """The hardships of one run; each is switched off in about half of the runs."""
    ranges: dict[str, tuple[float, float]] = {
        "delay_s": (0.000_1, 0.2),
        "reset_after_s": (2.0, 60.0),
        "half_open_after_s": (5.0, 120.0),
        "executor_latency_s": (0.000_1, 0.05),
        "clock_step_after_s": (1.0, 60.0),
        "power_cut_after_s": (2.0, 60.0),
        "disk_latency_s": (0.000_1, 0.1),
        "failed_sync_after_s": (5.0, 120.0),
        "bit_flip_after_s": (1.0, 30.0),
    }
    values: dict[str, float | int | bool] = {}
    for name, (low, high) in ranges.items():
        value = low * (high / low) ** random.random()
        values[name] = value if random.random() < 0.5 else 0.0
    values["split_bytes"] = random.choice((0, 0, 1, 3, 17, 1_000))
    values["slow_link_bytes_per_s"] = random.choice((0, 0, 2_000, 20_000))
    values["shuffle"] = random.random() < 0.5
    values["clock_drift_ppm"] = random.choice((0, 0, -200, 200, 50_000))
    values["small_disk_bytes"] = random.choice((0, 0, 0, 512 * 1024))
    return Hardships(**values)  # type: ignore[arg-type]  # The fields' types hold by construction.
