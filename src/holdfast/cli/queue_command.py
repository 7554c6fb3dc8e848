"""`holdfast queue`: the queues of a running broker by their names: list, look at one, read it."""

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from holdfast.cli.asking import PAGE_ROWS, add_action, broker_of, cell, moment, print_rows, rows
from holdfast.cli.options import Subparsers, name_given, row_count
from holdfast.cli.record_text import payload_text, printable
from holdfast.client.http import HttpClient

COLUMNS = (
    "queue_name",
    "kind",
    "consumers",
    "messages",
    "bytes",
    "committed_offset",
    "waiting",
    "owner",
)
LIMIT_DEFAULT = 1_000


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "queue",
        help="look at the queues of a running broker by their names",
        description="Look at the queues of a running broker by their names: tbmq.msg.all, which is"
        " the log, tbmq.msg.persisted, which is kept for DEVICE clients, one for each"
        " APPLICATION client, and those of cursors, bridges and Pulsar's subscriptions.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    list_parser = add_action(actions, "list", show_all, "print queues, a line each")
    show_parser = add_action(actions, "show", show, "print one queue with who reads it")
    read_parser = add_action(actions, "read", read, "print messages of a queue, read or not")
    for each in (show_parser, read_parser):
        each.add_argument("queue_name", type=name_given, metavar="QUEUE", help="its name")
    for each in (list_parser, read_parser):
        each.add_argument(
            "--limit",
            metavar="COUNT",
            type=row_count,
            default=LIMIT_DEFAULT,
            help="at most (default: 1000)",
        )
    read_parser.add_argument(
        "--from", dest="from_offset", metavar="OFFSET", type=int, default=0, help="from this one on"
    )


def show_all(options: argparse.Namespace) -> int:
    """Print queues."""
    found = rows(broker_of(options), "/v1/queues", "queues", {}, options.limit)
    return print_rows(found if options.json else map(_flat, found), COLUMNS, options)


def show(options: argparse.Namespace) -> int:
    """Print one queue."""
    found = broker_of(options).get(_path(options.queue_name))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    readers = found.pop("readers")
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        print(f"{name.removesuffix('_us'):<20} {moment(value) if is_time else cell(value)}")
    for reader in readers:
        who = reader.pop("consumer_group") or "its client"
        consumers = ", ".join(printable(each) for each in reader.pop("consumers")) or "nobody"
        numbers = ", ".join(f"{name} {value}" for name, value in reader.items())
        print(f"{'read by':<20} {printable(who)}: {numbers}; connected: {consumers}")
    return 0


def read(options: argparse.Namespace) -> int:
    """Print messages of a queue."""
    for row in _messages(broker_of(options), options):
        if options.json:
            print(json.dumps(row))
            continue
        number = "-" if row["number"] is None else row["number"]
        stored = datetime.fromtimestamp(row["stored_at_us"] / 1_000_000, tz=UTC)
        time = stored.isoformat(timespec="microseconds").replace("+00:00", "Z")
        payload = payload_text(base64.b64decode(row["payload_base64"]))
        topic = printable(row["topic_name"])
        print(f"{number:>6} {row['offset']:>8}  {time}  {row['qos']} {topic}  {payload}")
    return 0


def _messages(broker: HttpClient, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    left, offset = options.limit, options.from_offset
    while offset is not None and left > 0:
        query = {"from": offset, "limit": min(PAGE_ROWS, left)}
        page = broker.get(f"{_path(options.queue_name)}/messages", query)
        yield from page["messages"]
        left -= len(page["messages"])
        offset = page["next_offset"]
    if offset is not None:
        print(f"stopped before offset {offset}; --from goes on there", file=sys.stderr)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: a queue that several groups read shows whoever is behind, and a plus
    stands behind what is at least so much."""
    readers = row["readers"]
    committed = [reader["committed_offset"] for reader in readers]
    waiting = [reader["waiting"] for reader in readers]
    flat = {
        **row,
        "committed_offset": min(committed, default=None),
        "waiting": max(waiting, default=None),
        "owner": row["client_identifier"] or row["topic_filter"],
    }
    if not row["exact"]:
        counted = ("messages", "bytes", "waiting")
        flat |= {name: f"{flat[name]}+" for name in counted if flat[name] is not None}
    return flat


def _path(queue_name: str) -> str:
    return f"/v1/queues/{quote(queue_name, safe='')}"
