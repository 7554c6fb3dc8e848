"""What commands that ask a running broker have in common: which broker, pages, and safe text.

Never: sends what a client has chosen to a terminal as it is; what cannot be printed is escaped.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from getpass import getpass
from typing import Any
from urllib.parse import quote

from holdfast.cli.options import Subparsers, add_settings, effective
from holdfast.cli.record_text import printable
from holdfast.client.http import HttpClient

PAGE_ROWS = 1_000
"""As many rows as a broker gives at once."""


def add_action(actions: Subparsers, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    """An action that asks a running broker."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_broker(parser)
    parser.set_defaults(run=run)
    return parser


def add_broker(parser: argparse.ArgumentParser) -> None:
    """The options that say which broker is asked."""
    parser.add_argument(
        "--broker",
        metavar="URL",
        help="ask the broker at this address (https://user@host:port; it asks for the password)"
        " instead of the one that runs on the data directory",
    )
    add_settings(parser, "data.dir")


def broker_of(options: argparse.Namespace) -> HttpClient:
    """The broker that the options name; asks for a password that they leave out."""
    if options.broker is not None:
        return HttpClient.at(options.broker, ask_password=_ask_password)
    return HttpClient.on(effective(options).config.data_dir)


def _ask_password(user: str) -> str:
    return getpass(f"Password of {user}: ")


def rows(
    broker: HttpClient, path: str, name: str, query: Mapping[str, Any], limit: int
) -> Iterator[dict[str, Any]]:
    """The rows of all pages, `limit` at most."""
    after: str | None = ""
    count = 0
    while after is not None and count < limit:
        wanted = {**query, "limit": min(PAGE_ROWS, limit - count)}
        page = broker.get(path, wanted | ({"after": after} if after else {}))
        for row in page[name][: limit - count]:
            yield row
            count += 1
        after = page["next"]


def session_path(client_identifier: str, action: str = "") -> str:
    """Where a session is."""
    return f"/v1/sessions/{quote(client_identifier, safe='')}{action}"


def group_path(group: str) -> str:
    """Where a group of shared subscriptions is."""
    return f"/v1/groups/{quote(group, safe='')}"


def print_rows(
    found: Iterator[dict[str, Any]], columns: Sequence[str], options: argparse.Namespace
) -> int:
    """Prints rows as lines of JSON, or as a table of these columns."""
    if options.json:
        for row in found:
            print(json.dumps(row))
        return 0
    print_table([[row[column] for column in columns] for row in found], columns)
    return 0


def print_table(found: Iterable[Sequence[object]], columns: Sequence[str]) -> None:
    """Prints rows of values in the order of these columns, of which two may have one name."""
    table = [[cell(value) for value in row] for row in found]
    headings = [column.removesuffix("_us") for column in columns]
    widths = [max(map(len, column)) for column in zip(headings, *table, strict=True)]
    for line in (headings, *table):
        words = (word.ljust(width) for word, width in zip(line, widths, strict=True))
        print("  ".join(words).rstrip())


def cell(value: object) -> str:
    """A value of a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def moment(time_us: int) -> str:
    """A time in UTC to the second."""
    return datetime.fromtimestamp(time_us // 1_000_000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
