"""`holdfast cursor`: the cursors of a running broker: list, look at one, fork, move, remove."""

import argparse
import json
from typing import Any
from urllib.parse import quote

from holdfast.cli.asking import add_action, broker_of, cell, moment, print_rows, rows
from holdfast.cli.options import Subparsers, name_given, row_count
from holdfast.cli.record_text import printable
from holdfast.core.errors import ConfigurationError

COLUMNS = (
    "name",
    "place",
    "waiting",
    "oldest_at_us",
    "first_loss_in_s",
    "held_as",
    "made_by",
    "selection",
)
LIMIT_DEFAULT = 1_000
PLACES = ("earliest", "latest")


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "cursor",
        help="look at the cursors of a running broker, fork, move and remove them",
        description="Look at the cursors of a running broker, which are the places of readers of"
        " the log such as Spark queries; fork, move and remove them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print cursors, a line each")
    list_parser.add_argument(
        "--limit",
        metavar="COUNT",
        type=row_count,
        default=LIMIT_DEFAULT,
        help="at most (default: 1000)",
    )
    show_parser = add_action(actions, "show", show, "print one cursor with who holds it")
    fork_parser = add_action(
        actions, "fork", fork, "make another cursor with the same selection and place"
    )
    move_parser = add_action(actions, "move", move, "put a cursor that nobody holds elsewhere")
    remove_parser = add_action(
        actions, "remove", remove, "remove a cursor, whoever holds it, with what is kept for it"
    )
    for each in (show_parser, fork_parser, move_parser, remove_parser):
        each.add_argument("name", type=name_given, metavar="CURSOR", help="its name")
    fork_parser.add_argument(
        "fork", type=name_given, metavar="NAME", help="what the other one is called"
    )
    move_parser.add_argument("place", metavar="PLACE", help="earliest, latest or an offset")


def show_all(options: argparse.Namespace) -> int:
    """Print cursors."""
    found = rows(broker_of(options), "/v1/cursors", "cursors", {}, options.limit)
    return print_rows(found if options.json else map(_flat, found), COLUMNS, options)


def show(options: argparse.Namespace) -> int:
    """Print one cursor."""
    return _print(broker_of(options).get(_path(options.name)), options)


def fork(options: argparse.Namespace) -> int:
    """Make another one like it."""
    path = _path(options.name, "/fork")
    return _print(broker_of(options).post(path, {"name": options.fork}), options)


def move(options: argparse.Namespace) -> int:
    """Put it elsewhere."""
    place = options.place
    if place not in PLACES and not (place.isascii() and place.isdigit()):
        raise ConfigurationError(f"PLACE is earliest, latest or an offset, not {place!r}")
    body = {"place": place if place in PLACES else int(place)}
    return _print(broker_of(options).post(_path(options.name, "/move"), body), options)


def remove(options: argparse.Namespace) -> int:
    """Remove it."""
    broker_of(options).delete(_path(options.name))
    return 0


def _print(found: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    selection = found.pop("selection")
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        print(f"{name.removesuffix('_us'):<20} {moment(value) if is_time else cell(value)}")
    for topic_filter in selection:
        print(f"{'selects':<20} {printable(topic_filter)}")
    return 0


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table; a plus stands behind what is at least so much."""
    oldest_at_us, selection = row["oldest_at_us"], row["selection"]
    more = f" and {len(selection) - 1} more" if len(selection) > 1 else ""
    return {
        **row,
        "waiting": row["waiting"] if row["exact"] else f"{row['waiting']}+",
        "oldest_at_us": None if oldest_at_us is None else moment(oldest_at_us),
        "held_as": row["held_as"] or None,
        "made_by": row["made_by"] or None,
        "selection": selection[0] + more,
    }


def _path(name: str, action: str = "") -> str:
    return f"/v1/cursors/{quote(name, safe='')}{action}"
