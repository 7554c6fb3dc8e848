"""`holdfast retained`: list and remove retained messages of a running broker."""

import argparse
import json
from urllib.parse import urlencode

from holdfast.cli.asking import add_action, broker_of, print_rows, rows
from holdfast.cli.options import Subparsers, name_given, row_count
from holdfast.cli.record_text import printable

COLUMNS = ("topic_name", "payload_bytes", "qos", "offset")


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "retained",
        help="list and remove retained messages of a running broker",
        description="Look at the retained messages of a running broker, and remove them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print retained messages, a line each")
    list_parser.add_argument("--filter", metavar="FILTER", default="#", help="topics that match")
    list_parser.add_argument(
        "--limit", metavar="COUNT", type=row_count, default=1_000, help="at most (default: 1000)"
    )
    one = add_action(actions, "remove", remove, "remove the message retained on a topic")
    one.add_argument("topic_name", type=name_given, metavar="TOPIC")


def show_all(options: argparse.Namespace) -> int:
    """Print retained messages."""
    query = {"filter": options.filter}
    found = rows(broker_of(options), "/v1/retained", "retained", query, options.limit)
    return print_rows(found, COLUMNS, options)


def remove(options: argparse.Namespace) -> int:
    """Remove one."""
    query = urlencode({"topic_name": options.topic_name})
    done = broker_of(options).delete(f"/v1/retained/message?{query}")
    sentence = f"{printable(done['topic_name'])}: {done['done']}"
    print(json.dumps(done) if options.json else sentence)
    return 0
