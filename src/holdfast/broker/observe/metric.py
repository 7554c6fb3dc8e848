"""What a metric is: its name, its meaning, and where its number comes from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.broker.observe.snapshot import Snapshot

Labelled = Iterable[tuple[tuple[str, ...], float]]
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; counters have the ending `_total` in the text."""

    name: str
    kind: Kind
    help: str
    read: Callable[[Snapshot], float | Labelled]
    labels: tuple[str, ...] = ()
    sums: Callable[[Snapshot], Labelled] | None = None
    """Of a histogram, whose last label is `le`: by the labels before it."""
