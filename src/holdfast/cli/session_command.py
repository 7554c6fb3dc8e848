"""`holdfast session`: list, show, disconnect and remove sessions of a running broker."""

import argparse
import json
from collections import Counter
from typing import Any

from holdfast.cli.asking import (
    PAGE_ROWS,
    add_action,
    broker_of,
    cell,
    moment,
    print_rows,
    rows,
    session_path,
)
from holdfast.cli.options import Subparsers, name_given, row_count
from holdfast.cli.record_text import printable

COLUMNS = (
    "client_identifier",
    "environment",
    "user_name",
    "client_type",
    "state",
    "protocol_version",
    "persistent",
    "peer",
    "expiry_s",
)
LIMIT_DEFAULT = 1_000
LONGEST_SHOWN = 20


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "session",
        help="look at the sessions of a running broker, and end them",
        description="Look at the sessions of a running broker, and end them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print sessions, a line each")
    list_parser.add_argument(
        "--search", metavar="TEXT", default="", help="only client identifiers that contain this"
    )
    list_parser.add_argument("--user", metavar="NAME", default="", help="only this user's")
    list_parser.add_argument(
        "--state",
        choices=("any", "connected", "at_rest", "expired"),
        default="any",
        help="only these",
    )
    list_parser.add_argument(
        "--limit",
        metavar="COUNT",
        type=row_count,
        default=LIMIT_DEFAULT,
        help="at most (default: 1000)",
    )
    add_action(actions, "backlog", backlog, "count what waits for sessions at rest")
    for name, run, about in (
        ("show", show, "print one session with its queue and its subscriptions"),
        ("disconnect", disconnect, "end a session's connection; what it has is kept"),
        ("remove", remove, "end a session and remove all that it has"),
    ):
        one = add_action(actions, name, run, about)
        one.add_argument("client_identifier", type=name_given, metavar="CLIENT")


def show_all(options: argparse.Namespace) -> int:
    """Print sessions."""
    query = {"search": options.search, "user_name": options.user, "state": options.state}
    found = rows(broker_of(options), "/v1/sessions", "sessions", query, options.limit)
    return print_rows(found, COLUMNS, options)


def show(options: argparse.Namespace) -> int:
    """Print one session."""
    found = broker_of(options).get(session_path(options.client_identifier))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    subscriptions, consumers = found.pop("subscriptions"), found.pop("consumers")
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        print(f"{name.removesuffix('_us'):<20} {moment(value) if is_time else cell(value)}")
    for each in consumers:
        group = f" in {printable(each['consumer_group'])}" if each["consumer_group"] else ""
        print(f"{'reads':<20} {each['queue_name']}{group}{_pack(each)}")
    for each in subscriptions:
        print(f"{'subscription':<20} {printable(each['topic_filter'])}  QoS {each['qos']}")
    return 0


def _pack(consumer: dict[str, Any]) -> str:
    if consumer["pack_first_offset"] is None:
        return ""
    rounds = f", overdue {consumer['pack_rounds']} times" if consumer["pack_rounds"] else ""
    return (
        f": {consumer['pack_unacknowledged']} of {consumer['pack_messages']} messages from offset"
        f" {consumer['pack_first_offset']} not acknowledged{rounds}"
    )


def backlog(options: argparse.Namespace) -> int:
    """Print what waits for all sessions at rest."""
    broker = broker_of(options)
    total: Counter[str] = Counter()
    longest: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        query = {"limit": PAGE_ROWS} | ({"after": after} if after else {})
        page = broker.get("/v1/backlog", query)
        total.update({name: page[name] for name in ("sessions", "behind", "messages")})
        longest = sorted([*longest, *page["longest"]], key=lambda row: -row["messages"])
        longest, after = longest[:LONGEST_SHOWN], page["next"]
    if options.json:
        print(json.dumps({**total, "longest": longest}, indent=2))
        return 0
    sessions, behind, messages = (total[name] for name in ("sessions", "behind", "messages"))
    print(f"{messages} messages wait for {behind} of {sessions} sessions at rest")
    for row in longest:
        print(f"{row['messages']:>10}  {printable(row['client_identifier'])}")
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
