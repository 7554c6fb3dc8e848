"""`holdfast group`: list groups of shared subscriptions, and show who has what of one."""

import argparse
import json
from typing import Any

from holdfast.cli.asking import (
    add_action,
    broker_of,
    cell,
    group_path,
    moment,
    print_rows,
    rows,
)
from holdfast.cli.options import Subparsers, name_given, row_count

COLUMNS = ("group", "environment", "strategy", "subscribers", "queued", "in_flight")
SHARE_COLUMNS = ("client_identifier", "qos", "delivered", "in_flight", "key_slots")
AWAITED_COLUMNS = ("client_identifier", "messages", "first_offset", "since", "ends_at")
KEY_COLUMNS = ("key_slot", "client_identifier", "in_flight", "waiting", "first_offset", "since")
LIMIT_DEFAULT = 1_000


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "group",
        help="look at the groups of shared subscriptions of a running broker",
        description="Look at the groups of shared subscriptions of a running broker.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print groups, a line each")
    list_parser.add_argument(
        "--limit",
        metavar="COUNT",
        type=row_count,
        default=LIMIT_DEFAULT,
        help="at most (default: 1000)",
    )
    one = add_action(actions, "show", show, "print one group: what each member got and has")
    one.add_argument(
        "group", type=name_given, metavar="GROUP", help="its whole name, $share/<name>/<filter>"
    )


def show_all(options: argparse.Namespace) -> int:
    """Print groups."""
    found = rows(broker_of(options), "/v1/groups", "groups", {}, options.limit)
    return print_rows(found, COLUMNS, options)


def show(options: argparse.Namespace) -> int:
    """Print one group."""
    found = broker_of(options).get(group_path(options.group))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    shares, keys = found.pop("shares"), found.pop("keys_held")
    awaited = found.pop("awaited")
    del found["members"]
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        print(f"{name.removesuffix('_us'):<20} {moment(value) if is_time else cell(value)}")
    if shares:
        print()
        print_rows(iter(shares), SHARE_COLUMNS, options)
    if awaited:
        print()
        away = ({**each, **_times(each, "since_us", "ends_at_us")} for each in awaited)
        print_rows(away, AWAITED_COLUMNS, options)
    if keys:
        print()
        held = ({**key, "since": moment(key["since_us"])} for key in keys)
        print_rows(held, KEY_COLUMNS, options)
    return 0


def _times(row: dict[str, Any], *names: str) -> dict[str, str | None]:
    """The times of a row as a person reads them."""
    found = {name.removesuffix("_us"): row[name] for name in names}
    return {name: None if at_us is None else moment(at_us) for name, at_us in found.items()}
