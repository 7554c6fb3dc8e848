"""`holdfast losses`: what will not be delivered to whom, and why."""

import argparse
from collections.abc import Iterator
from typing import Any

from holdfast.cli.asking import add_broker, broker_of, moment, print_rows, rows
from holdfast.cli.options import Subparsers

COLUMNS = ("at_us", "client_identifier", "reason", "count", "first_offset", "end_offset")


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "losses",
        help="print the loss ledger of a running broker",
        description="Print what will not be delivered to whom, and why; the oldest first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON")
    add("--client", metavar="CLIENT", default="", help="only losses of this client")
    add("--reason", metavar="REASON", default="", help="only losses with this reason")
    add("--since", metavar="TIME", help="from this time on: 2026-01-31T12:00 (UTC)")
    add("--until", metavar="TIME", help="up to this time")
    add("--limit", metavar="COUNT", type=int, default=1_000, help="at most (default: 1000)")
    add_broker(parser)
    parser.set_defaults(run=show)


def show(options: argparse.Namespace) -> int:
    """Print the ledger."""
    query = {"client_identifier": options.client, "reason": options.reason}
    query |= {
        name: value
        for name, value in (("since", options.since), ("until", options.until))
        if value is not None
    }
    found = rows(broker_of(options), "/v1/losses", "losses", query, options.limit)
    return print_rows(found if options.json else _timed(found), COLUMNS, options)


def _timed(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in found:
        yield row | {"at_us": moment(row["at_us"])}
