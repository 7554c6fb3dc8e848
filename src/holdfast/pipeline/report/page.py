"""The report as one page that needs nothing beside itself.

Owns: what stands where, and the words. Never: reads a table (`data`) or draws (`charts`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from typing import Any

from holdfast.pipeline.report.charts import Bar, Line, duration, lanes, lines, shares

Data = Mapping[str, Any]
STYLES = "abcd"
PRESENCE = "Visits of tags at their readers: the darker, the more tags. A gap is an absence."
QUEUED = (
    "Reads that arrived within one second. A long span of their own times is evidence of delivery"
    " after a wait."
)
TABLES = "How far each table is. Behind: offsets that its input has already."
LONG_SPAN_S = 60
"""Reads of more than a minute that arrive within a second have waited."""


def page(data: Data) -> str:
    """The whole document."""
    style = (files("holdfast.pipeline.report") / "page.css").read_text()
    beside = _card("Rejected", "By the first rule that a row broke.", _rejected(data))
    beside += _card("Silences", "The longest times between a device's messages.", _gaps(data))
    cards = [
        _card("Messages a second", "What arrived in the log, by environment.", _rates(data)),
        _card("From device to log", "By the devices' own clocks.", _latency(data)),
        *_consumers(data),
        _card("Presence", PRESENCE, _presence(data), wide=True),
        _card("Readers", "How many tags, how often, how long.", _readers(data)),
        f'<div class="stack">{beside}</div>',
        _card("Queued deliveries", QUEUED, _queued(data), wide=True),
        _card("Tables", TABLES, _tables(data), wide=True),
    ]
    joined = "".join(cards)
    made = _moment(data["made_at"])
    log = data["log"]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Holdfast pipeline</title><style>{style}</style></head><body><main>"
        f"<h1>{escape(_headline(data))}</h1>"
        f'<p class="lead">{escape(log["subscribe"])} · {made} UTC</p>'
        f'<div class="facts">{_facts(data)}</div><div class="cards">{joined}</div>'
        f"<footer>Log {escape(log['epoch'])}. The same as data: holdfast pipeline report --json"
        "</footer></main></body></html>\n"
    )


def _headline(data: Data) -> str:
    totals = data["totals"]
    said = f"{totals['records']:,} messages, each in its table once"
    if totals["behind"]:
        said += f"; {totals['behind']:,} offsets to go"
    return said


def _facts(data: Data) -> str:
    totals = data["totals"]
    facts = [
        ("reads", "tag reads", False),
        ("events", "reader events", False),
        ("readers", "readers", False),
        ("tags", "tags", False),
        ("duplicates", "sent again", False),
        ("late", "late", False),
        ("rejected", "rejected", True),
    ]
    return "".join(
        f'<div class="fact{" bad" if warns and totals[name] else ""}"><b>{totals[name]:,}</b>'
        f"<span>{said}</span></div>"
        for name, said, warns in facts
    )


def _rates(data: Data) -> str:
    window_s = data["window_s"]
    counted: dict[str, dict[float, float]] = defaultdict(dict)
    for row in data["throughput"]:
        counted[row["environment"]][_seconds(row["windowStart"])] = row["messages"] / window_s
    # A window without a message has no row, and is no reason to draw over it.
    for points in counted.values():
        for begin in [each for each in points if each + window_s < max(points)]:
            points.setdefault(begin + window_s, 0.0)
        for begin in [each for each in points if each - window_s > min(points)]:
            points.setdefault(begin - window_s, 0.0)
    most = sorted(counted, key=lambda name: -sum(counted[name].values()))[: len(STYLES)]
    series = [
        Line(name or "(none)", sorted(counted[name].items()), style, filled=True)
        for name, style in zip(most, STYLES, strict=False)
    ]
    return lines(series, "messages a second over time")


def _latency(data: Data) -> str:
    return _percentiles(data["latency"], "seconds from device to log over time")


def _consumers(data: Data) -> list[str]:
    """A card for each queue whose latency is told."""
    rows = data["consumer_latency"]
    return [
        _card(
            f"From log to {queue}",
            "Until the acknowledgement was on record.",
            _percentiles(
                [row for row in rows if row["queue"] == queue],
                f"seconds from log to {queue} over time",
            ),
        )
        for queue in sorted({row["queue"] for row in rows})
    ]


def _percentiles(rows: Sequence[Mapping[str, Any]], label: str) -> str:
    by_window: dict[float, dict[str, float]] = {}
    for row in rows:
        found = by_window.setdefault(_seconds(row["windowStart"]), {})
        for name in ("p50Ms", "p95Ms", "p99Ms"):
            found[name] = max(found.get(name, 0.0), row[name] / 1000)
    series = [
        Line(said, sorted((at, each[name]) for at, each in by_window.items()), style)
        for name, said, style in (
            ("p50Ms", "half of them", "d"),
            ("p95Ms", "19 of 20", "b"),
            ("p99Ms", "99 of 100", "c"),
        )
    ]
    drawn = series if by_window else []
    return lines(drawn, label, durations=True)


def _presence(data: Data) -> str:
    names = [row["reader"] for row in data["readers"]]
    bars = [
        Bar(
            row["hostName"],
            _seconds(row["startedAt"]),
            _seconds(row["endedAt"]),
            f"{row['idHex']}: {_moment(row['startedAt'])} to {_moment(row['endedAt'])}",
        )
        for row in data["visits"]
    ]
    return lanes(bars, names, "visits of tags at each reader over time")


def _readers(data: Data) -> str:
    rows = [
        (
            row["reader"],
            row["tags"],
            row["visits"],
            row["reads"],
            duration(row["meanDwellSeconds"]),
            duration(row["longestDwellSeconds"]),
        )
        for row in data["readers"]
    ]
    return _table(("reader", "tags", "visits", "reads", "mean dwell", "longest"), rows)


def _rejected(data: Data) -> str:
    rows = [
        (f"not: {row['rule']}", float(row["rows"]), f"{row['rows']:,}") for row in data["rejected"]
    ]
    return shares(rows, "c")


def _queued(data: Data) -> str:
    rows = [
        (
            _moment(row["batch_time"]),
            row["batch_size"],
            _moment(row["earliest_event"])[-8:],
            _moment(row["latest_event"])[-8:],
            _span(row["event_span_seconds"]),
        )
        for row in data["queued_deliveries"]
    ]
    return _table(("arrived", "reads", "earliest", "latest", "span"), rows)


def _span(seconds: float) -> str:
    said = duration(seconds)
    return _Long(said) if seconds > LONG_SPAN_S else said


def _gaps(data: Data) -> str:
    rows = [
        (
            row["device"],
            float(row["silentSeconds"]),
            f"{duration(row['silentSeconds'])}, heard again {_moment(row['heardAgainAt'])}",
        )
        for row in data["gaps"][:8]
    ]
    return shares(rows, "b")


def _tables(data: Data) -> str:
    rows = [
        (
            row["table"],
            row["reads"],
            row["rows"],
            row["files"],
            f"{row['size_bytes'] / 1024:,.0f} KiB",
            row["commits"],
            row["version"],
            row["behind"],
        )
        for row in data["tables"]
    ]
    names = ("table", "from", "rows", "files", "size", "commits", "offset", "behind")
    return _table(names, rows)


def _card(title: str, about: str, inside: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    said = f'<h2>{escape(title)}</h2><p class="about">{escape(about)}</p>'
    return f"<section{kind}>{said}{inside}</section>"


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return '<p class="none">Nothing yet.</p>'
    right = [not isinstance(cell, str) or cell[:1].isdigit() for cell in rows[0]]
    right[0] = False
    head = "".join(
        f"<th{' class=n' if is_right else ''}>{escape(name)}</th>"
        for name, is_right in zip(names, right, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(_cell(cell, is_right) for cell, is_right in zip(row, right, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


class _Long(str):
    """A duration that is worth a look."""

    __slots__ = ()


def _cell(cell: Any, is_right: bool) -> str:
    said = escape(cell) if isinstance(cell, str) else f"{cell:,}"
    kinds = [*(["n"] if is_right else []), *(["long"] if isinstance(cell, _Long) else [])]
    joined = " ".join(kinds)
    kind = f' class="{joined}"' if kinds else ""
    return f"<td{kind}>{said}</td>"


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")
