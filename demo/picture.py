"""Draw what happened: messages a second at both ends of the broker, and where it was gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

BUCKET_S = 0.25


@dataclass(frozen=True)
class Curve:
    """When something happened, in seconds since the start."""

    label: str
    times: Sequence[float]


@dataclass(frozen=True)
class Span:
    """A time in which someone was not there."""

    label: str
    begin: float
    end: float


def draw(path: Path, curves: Sequence[Curve], spans: Sequence[Span]) -> None:
    """One panel a curve, with the same time axis, and the absences as shaded bands."""
    end = max((max(curve.times, default=0.0) for curve in curves), default=0.0) + BUCKET_S
    figure, panels = plt.subplots(
        len(curves), 1, figsize=(11, 2.1 * len(curves)), sharex=True, layout="constrained"
    )
    edges = [BUCKET_S * step for step in range(int(end / BUCKET_S) + 2)]
    for panel, curve, colour in zip(panels, curves, ("C0", "C2", "C4", "C5"), strict=False):
        weights = [1 / BUCKET_S] * len(curve.times)
        panel.hist(curve.times, bins=edges, weights=weights, color=colour, label=curve.label)
        for span, shade in zip(spans, ("tab:red", "tab:gray"), strict=False):
            panel.axvspan(span.begin, span.end, color=shade, alpha=0.2, label=span.label)
        panel.set_ylabel("messages / s")
        panel.legend(loc="upper left", fontsize="small")
    panels[-1].set_xlabel("seconds since the first report")
    figure.suptitle("Tag reads through a broker that is killed on the way")
    figure.savefig(path, dpi=110)
    plt.close(figure)
