"""The batch analysis as one page that needs nothing beside itself.

Owns: what stands where. Never: asks a database.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1c2430, #e6e9ee);
  --soft: light-dark(#667080, #98a2b3); --bar: light-dark(#2f6fde, #6ea0ff);
  --ground: light-dark(#ffffff, #14181f); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  margin: 2.5rem auto; max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.3rem; margin: 0; } p { color: var(--soft); margin: .3rem 0 1.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; color: var(--soft); }
th, td { padding: .3rem 1rem .3rem 0; white-space: nowrap; } td.number { text-align: right; }
td.drawn { width: 40%; padding-right: 0; }
td.drawn div { height: .8rem; min-width: 1px; border-radius: 2px; background: var(--bar); }
"""
NUMBERS: Final = ("batch_size", "event_span_seconds")


def page(
    table: str,
    verdict: str,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    spans: Sequence[float],
) -> str:
    """The whole document: a line for each second, with a bar for the span of its events."""
    longest = max(spans, default=0) or 1
    heading = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(
        f"<tr>{_cells(columns, row)}{_drawn(span / longest)}</tr>"
        for row, span in zip(rows, spans, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Arrivals of {escape(table)}</title><style>{STYLE}</style></head><body>"
        f"<h1>Arrivals of {escape(table)}</h1><p>{escape(verdict)}</p>"
        f"<table><thead><tr>{heading}<th></th></tr></thead><tbody>{lines}</tbody></table>"
        "</body></html>\n"
    )


def _cells(columns: Sequence[str], row: Mapping[str, Any]) -> str:
    return "".join(
        f"<td{' class=number' if name in NUMBERS else ''}>{_text(row[name])}</td>"
        for name in columns
    )


def _text(value: object) -> str:
    return "-" if value is None else escape(str(value))


def _drawn(share: float) -> str:
    drawn = f'<div style="width:{share * 100:.1f}%"></div>' if share > 0 else ""
    return f'<td class="drawn">{drawn}</td>'
