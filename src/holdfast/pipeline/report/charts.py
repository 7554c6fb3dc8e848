"""Draw charts as SVG, with colours that the page's style gives.

Owns: scales, axes and marks. Never: knows what is drawn; it is handed points and names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import log10

WIDTH, HEIGHT = 560, 220
WIDE = 1140
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 26
LANE = 20
TICKS = 4
SHORTEST_S = 0.001
"""Clocks of devices are no better."""
MARK_MINIMUM = 2.0
"""Shorter than two points is not seen."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str
    """A class of the page's style: `a` to `d`."""
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in a lane."""

    lane: str
    begin: float
    end: float
    title: str


def lines(series: Sequence[Line], label: str, *, durations: bool = False) -> str:
    """Lines over time: amounts from 0 up, or durations in seconds from a millisecond up, where each
    line of the grid is ten times the one below."""
    points = [point for line in series for point in line.points]
    if not points:
        return '<p class="none">Nothing yet.</p>'
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    most = max(y for _, y in points)
    ticks = _decades(most) if durations else _steps(most)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        across = 0.5 if high == low else (x - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), _height(y, ticks, durations=durations)

    parts = [_time_axis(low, high, HEIGHT, WIDTH)]
    for tick in ticks:
        y = _height(tick, ticks, durations=durations)
        said = duration(tick) if durations else amount(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{said}</text>')
    for line in series:
        placed = [at(point) for point in line.points]
        if not placed:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        if line.filled:
            floor = HEIGHT - BOTTOM
            around = f"{placed[0][0]:.1f},{floor} {path} {placed[-1][0]:.1f},{floor}"
            parts.append(f'<polygon class="area {line.style}" points="{around}"/>')
        parts.append(f'<polyline class="line {line.style}" points="{path}"/>')
        if len(placed) == 1:
            x, y = placed[0]
            parts.append(f'<circle class="dot {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    key = "".join(
        f'<span class="key"><i class="{line.style}"></i>{escape(line.name)}</span>'
        for line in series
    )
    return _svg("".join(parts), WIDTH, HEIGHT, label) + f'<p class="keys">{key}</p>'


def lanes(bars: Sequence[Bar], names: Sequence[str], label: str) -> str:
    """Stretches of time, a lane for each name."""
    if not bars:
        return '<p class="none">Nothing yet.</p>'
    low, high = min(bar.begin for bar in bars), max(bar.end for bar in bars)
    span = max(high - low, 1e-9)
    left = LEFT + 70
    height = TOP + LANE * len(names) + BOTTOM
    places = {name: place for place, name in enumerate(names)}
    parts = [_time_axis(low, high, height, WIDE, left)]
    for name, place in places.items():
        y = TOP + place * LANE
        parts.append(
            f'<rect class="lane" x="{left}" y="{y + 3}" width="{WIDE - left - RIGHT}"'
            f' height="{LANE - 6}" rx="3"/>'
        )
        parts.append(f'<text class="tick end" x="{left - 8}" y="{y + 14}">{escape(name)}</text>')
    for bar in bars:
        if bar.lane not in places:
            continue
        x = left + (bar.begin - low) / span * (WIDE - left - RIGHT)
        width = max((bar.end - bar.begin) / span * (WIDE - left - RIGHT), MARK_MINIMUM)
        y = TOP + places[bar.lane] * LANE + 3
        parts.append(
            f'<rect class="visit" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE - 6}"'
            f' rx="2"><title>{escape(bar.title)}</title></rect>'
        )
    return _svg("".join(parts), WIDE, height, label)


def shares(rows: Sequence[tuple[str, float, str]], style: str) -> str:
    """Horizontal bars: what, how much, and how that is said."""
    if not rows:
        return '<p class="none">Nothing, which is good.</p>'
    most = max(amount for _, amount, _ in rows) or 1
    return "".join(
        f'<div class="share"><span>{escape(name)}</span><em>{escape(said)}</em>'
        f'<i class="{style}" style="width:{max(amount / most * 100, 1):.1f}%"></i></div>'
        for name, amount, said in rows
    )


def nice(value: float) -> float:
    """The next round number: 1, 2 or 5 with zeros."""
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(size * step for step in (1, 2, 5, 10) if size * step >= value * 0.999)


def amount(value: float) -> str:
    """A number as one says it."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 10:
            return f"{value / size:.0f}{letter}"
        if abs(value) >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def duration(seconds: float) -> str:
    """A time as one says it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _steps(most: float) -> list[float]:
    top = nice(max(most, 1e-9))
    return [top * tick / TICKS for tick in range(TICKS + 1)]


def _decades(most: float) -> list[float]:
    ticks = [SHORTEST_S]
    while ticks[-1] < most:
        ticks.append(ticks[-1] * 10)
    return ticks if len(ticks) > 1 else [SHORTEST_S, SHORTEST_S * 10]


def _height(value: float, ticks: Sequence[float], *, durations: bool) -> float:
    low, top = ticks[0], ticks[-1]
    if durations:
        share = log10(max(value, low) / low) / log10(top / low)
    else:
        share = max(value, 0.0) / top
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _time_axis(low: float, high: float, height: int, width: int, left: int = LEFT) -> str:
    form = "%H:%M:%S" if high - low < 600 else "%H:%M" if high - low < 172_800 else "%d %b"
    parts = []
    for tick in range(TICKS + 1):
        moment = datetime.fromtimestamp(low + (high - low) * tick / TICKS, UTC)
        x = left + tick / TICKS * (width - left - RIGHT)
        where = "start" if tick == 0 else "end" if tick == TICKS else "middle"
        parts.append(
            f'<text class="tick" text-anchor="{where}" x="{x:.1f}"'
            f' y="{height - 8}">{moment.strftime(form)}</text>'
        )
        if low == high:
            break
    return "".join(parts)


def _svg(inside: str, width: int, height: int, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{inside}</svg>"
    )
