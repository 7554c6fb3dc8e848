"""`holdfast session`: list, show, disconnect and remove sessions of a running broker."""

import argparse
import json

from holdfast.cli.asking import (
    add_action,
    broker_of,
    cell,
    moment,
    print_rows,
    printable,
    rows,
    session_path,
)
from holdfast.cli.options import Subparsers

COLUMNS = ("client_identifier", "state", "protocol_version", "persistent", "peer", "expiry_s")
LIMIT_DEFAULT = 1_000


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "session",
        help="list, show, disconnect and remove sessions of a running broker",
        description="Look at the sessions of a running broker, and end them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print sessions, a line each")
    list_parser.add_argument("--search", metavar="TEXT", default="", help="that contain this")
    list_parser.add_argument(
        "--state", choices=("any", "connected", "at_rest"), default="any", help="only these"
    )
    list_parser.add_argument(
        "--limit", metavar="COUNT", type=int, default=LIMIT_DEFAULT, help="at most (default: 1000)"
    )
    for name, run, about in (
        ("show", show, "print one session with its queue and its subscriptions"),
        ("disconnect", disconnect, "end a session's connection; what it has is kept"),
        ("remove", remove, "end a session and remove all that it has"),
    ):
        one = add_action(actions, name, run, about)
        one.add_argument("client_identifier", metavar="CLIENT")


def show_all(options: argparse.Namespace) -> int:
    """Print sessions."""
    query = {"search": options.search, "state": options.state}
    found = rows(broker_of(options), "/v1/sessions", "sessions", query, options.limit)
    return print_rows(found, COLUMNS, options)


def show(options: argparse.Namespace) -> int:
    """Print one session."""
    found = broker_of(options).get(session_path(options.client_identifier))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    subscriptions = found.pop("subscriptions")
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        print(f"{name.removesuffix('_us'):<20} {moment(value) if is_time else cell(value)}")
    for each in subscriptions:
        print(f"{'subscription':<20} {printable(each['topic_filter'])}  QoS {each['qos']}")
    return 0


def disconnect(options: argparse.Namespace) -> int:
    """End a connection."""
    done = broker_of(options).post(session_path(options.client_identifier, "/disconnect"))
    return _say(done, options)


def remove(options: argparse.Namespace) -> int:
    """Remove a session."""
    return _say(broker_of(options).delete(session_path(options.client_identifier)), options)


def _say(done: dict[str, str], options: argparse.Namespace) -> int:
    sentence = f"{printable(done['client_identifier'])}: {done['done']}"
    print(json.dumps(done) if options.json else sentence)
    return 0
