"""Draw a soak: what must stay flat, over time."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from tests.soak.samples import QUANTITIES, Sample, judged


def draw(samples: Sequence[Sample], path: Path) -> None:
    """One panel for each quantity, and one for what was delivered."""
    times = [sample.at_s / 60 for sample in samples]
    warm_after = next((sample.at_s / 60 for sample in judged(samples)), times[-1])
    figure, panels = plt.subplots(
        len(QUANTITIES) + 1, 1, figsize=(9, 8), sharex=True, layout="constrained"
    )
    for panel, quantity in zip(panels, QUANTITIES, strict=False):
        panel.plot(times, [quantity.of(sample) for sample in samples])
        panel.set_ylabel(f"{quantity.title} {quantity.unit}".strip())
        panel.set_ylim(bottom=0)
        panel.axvspan(0, warm_after, color="tab:gray", alpha=0.15)
    rates = [0.0] + [
        (later.arrived - sample.arrived) / max(later.at_s - sample.at_s, 1e-9)
        for sample, later in itertools.pairwise(samples)
    ]
    panels[-1].plot(times, rates, color="C2")
    panels[-1].set_ylabel("delivered / s")
    panels[-1].set_xlabel("minutes (grey: warm-up, not judged)")
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
