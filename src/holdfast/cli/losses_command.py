"""`holdfast losses`: what will not be delivered to whom, and why; and to deliver it once more."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from holdfast.cli.asking import add_action, add_broker, broker_of, moment, print_rows, rows
from holdfast.cli.options import Subparsers, row_count, time_us
from holdfast.cli.record_text import printable
from holdfast.core.loss_reason import LossReason

COLUMNS = (
    "number",
    "at_us",
    "client_identifier",
    "reason",
    "count",
    "first_offset",
    "end_offset",
    "redriven_at_us",
)


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "losses",
        help="print the loss ledger of a running broker, and drive losses again",
        description="Print what will not be delivered to whom, and why; the oldest first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON")
    add("--client", metavar="CLIENT", default="", help="only losses of this client")
    about = f"only losses with this reason: {', '.join(LossReason)}"
    add("--reason", metavar="REASON", choices=[str(each) for each in LossReason], help=about)
    add("--since", metavar="TIME", help="from this time on: 2026-01-31T12:00 (UTC), or an age: 10m")
    add("--until", metavar="TIME", help="up to this time")
    add("--limit", metavar="COUNT", type=row_count, default=1_000, help="at most (default: 1000)")
    add_broker(parser)
    parser.set_defaults(run=show)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    redrive_parser = add_action(
        actions, "redrive", redrive, "deliver what a row tells of once more, to who lost it"
    )
    redrive_parser.add_argument("number", metavar="NUMBER", type=int, help="the number of the row")


def show(options: argparse.Namespace) -> int:
    """Print the ledger."""
    query = {"client_identifier": options.client, "reason": options.reason or ""}
    query |= {
        name: str(time_us(written))
        for name, written in (("since", options.since), ("until", options.until))
        if written is not None
    }
    found = rows(broker_of(options), "/v1/losses", "losses", query, options.limit)
    return print_rows(found if options.json else _timed(found), COLUMNS, options)


def redrive(options: argparse.Namespace) -> int:
    """Have one row delivered again."""
    done = broker_of(options).post(f"/v1/losses/{options.number}/redrive")
    if options.json:
        print(json.dumps(done))
        return 0
    print(f"{done['messages']} messages go to {printable(done['client_identifier'])} again")
    for part in done["gone"]:
        print(f"gone from the log: offsets {part['first_offset']} to {part['end_offset'] - 1}")
    return 0


def _timed(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in found:
        driven_us = row["redriven_at_us"]
        driven = None if driven_us is None else moment(driven_us)
        yield row | {"at_us": moment(row["at_us"]), "redriven_at_us": driven}
