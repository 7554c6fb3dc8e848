"""`holdfast verify`: what the decision record has people check, as commands.

`batches` is its analysis of a table: which seconds brought many rows, and how far apart in time the
events were of which they tell. `isolation`, `disconnect` and `canary` are beside it. Nothing of
processors is imported before one of these runs: the other commands do not wait for it.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import verify_canary, verify_disconnect, verify_isolation
from holdfast.cli.arrivals_page import page
from holdfast.cli.options import Subparsers

if TYPE_CHECKING:
    from holdfast.processors.arrivals import Arrivals

TABLE: Final = "bbu.tag_read_processings"
EVENT_COLUMN: Final = "event_timestamp_utc"
ROWS_MORE_THAN: Final = 10
NEWEST: Final = 20
"""What the record asks for: seconds of more than ten rows, and the newest twenty of them."""
LONG_SPAN_S: Final = 60
"""Rows of more than a minute that were committed within a second have waited."""
BAR_CHARACTERS: Final = 30
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
COLUMNS: Final = (
    "batch_time",
    "batch_size",
    "earliest_event",
    "latest_event",
    "event_span_seconds",
)
"""The record's own names."""


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "verify",
        help="check that what was published has come",
        description="Check that what was published has come.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    batches = actions.add_parser(
        "batches",
        help="show which seconds brought many rows, and how far apart their events are",
        description="Show which seconds brought many rows to a table of a processor, and how far"
        " apart in time their events are: a long span within one second is evidence of messages"
        " that had waited for a processor.",
        allow_abbrev=False,
    )
    batches.add_argument("url", metavar="SINK", help="sqlite:///FILE or postgresql://USER@HOST/DB")
    batches.add_argument("--table", default=TABLE, help=f"the table (default: {TABLE})")
    batches.add_argument(
        "--event-column",
        metavar="COLUMN",
        default=EVENT_COLUMN,
        help=f"its column with the times of events (default: {EVENT_COLUMN})",
    )
    batches.add_argument(
        "--more-than",
        metavar="ROWS",
        type=int,
        default=ROWS_MORE_THAN,
        help=f"only seconds with more rows (default: {ROWS_MORE_THAN})",
    )
    batches.add_argument(
        "--limit",
        metavar="COUNT",
        type=int,
        default=NEWEST,
        help=f"at most so many seconds, the newest (default: {NEWEST})",
    )
    batches.add_argument("--html", metavar="FILE", type=Path, help="draw it into this file too")
    batches.add_argument("--json", action="store_true", help="print JSON, a line for each second")
    batches.set_defaults(run=show_batches)
    verify_disconnect.add_to(actions)
    verify_isolation.add_to(actions)
    verify_canary.add_to(actions)


def show_batches(options: argparse.Namespace) -> int:
    """Print the analysis, and draw it."""
    from holdfast.processors.arrivals import arrivals

    found = arrivals(
        options.url,
        table=options.table,
        event_column=options.event_column,
        more_than=options.more_than,
        newest=options.limit,
    )
    rows = [_row(each) for each in found]
    verdict = _verdict(found, options.more_than)
    if options.html is not None:
        spans = [each.event_span_seconds for each in found]
        options.html.write_text(page(options.table, verdict, COLUMNS, rows, spans))
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    if rows:
        _print_table(found, rows)
    print(verdict)
    return 0


def _row(each: "Arrivals") -> dict[str, Any]:
    return {
        "batch_time": each.batch_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "batch_size": each.batch_size,
        "earliest_event": _moment(each.earliest_event),
        "latest_event": _moment(each.latest_event),
        "event_span_seconds": round(each.event_span_seconds, 3),
    }


def _moment(at: Any) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")[:-6] + "Z"


def _verdict(found: Sequence["Arrivals"], more_than: int) -> str:
    if not found:
        return f"No second brought more than {more_than} rows."
    long = [each for each in found if each.event_span_seconds > LONG_SPAN_S]
    rows = sum(each.batch_size for each in long)
    if not long:
        return f"No second brought events that are more than {LONG_SPAN_S} s apart."
    return (
        f"{len(long)} of {len(found)} seconds brought events that are more than {LONG_SPAN_S} s"
        f" apart: their {rows} rows had waited."
    )


def _print_table(found: Sequence["Arrivals"], rows: Sequence[dict[str, Any]]) -> None:
    table = [["-" if row[name] is None else str(row[name]) for name in COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *table, strict=True)]
    longest = max(each.event_span_seconds for each in found)
    bars = ["", *(bar(each.event_span_seconds, longest) for each in found)]
    for line, drawn in zip((COLUMNS, *table), bars, strict=True):
        words = (
            word.rjust(width) if name in ("batch_size", "event_span_seconds") else word.ljust(width)
            for name, word, width in zip(COLUMNS, line, widths, strict=True)
        )
        print("  ".join((*words, drawn)).rstrip())


def bar(value: float, longest: float) -> str:
    """A bar of eighths of a character; whatever is not nothing is seen."""
    if value <= 0:
        return ""
    eighths = max(1, round(value / longest * BAR_CHARACTERS * 8))
    full, rest = divmod(eighths, 8)
    return (BLOCKS[8] * full + BLOCKS[rest]).rstrip()
