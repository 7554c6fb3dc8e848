"""`holdfast bridge`: the bridges of a running broker: list, look at one, add, check, start, stop,
remove, watch."""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.cli.asking import add_action, broker_of, cell, moment, print_rows, rows
from holdfast.cli.bridge_frame import frame
from holdfast.cli.options import Subparsers, name_given, row_count
from holdfast.cli.record_text import printable
from holdfast.cli.top_command import show_frames
from holdfast.client.http import HttpClient
from holdfast.core.errors import ConfigurationError

COLUMNS = (
    "name",
    "address",
    "state",
    "waiting",
    "buffered",
    "in_flight",
    "acknowledged",
    "received",
    "lost",
    "last_error",
)
LIMIT_DEFAULT = 1_000
EXIT_REFUSED = 1
PASSWORDS = {"password", "password_file"}
"""Fields of which a bridge has one."""


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "bridge",
        help="look at the bridges of a running broker, add, check and remove them",
        description="Look at the bridges of a running broker, which carry messages to other"
        " brokers and from them; add, check, start, stop and remove them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_action(actions, "list", show_all, "print bridges, a line each")
    add_action(actions, "watch", watch, "show bridges in the terminal, every second; q ends it")
    show_parser = add_action(actions, "show", show, "print one bridge with its settings")
    add_parser = add_action(
        actions, "add", add, "make a bridge, or with --replace change one that was made so"
    )
    add_parser.add_argument(
        "--replace", action="store_true", help="change it; it keeps its queue and its place"
    )
    check_parser = add_action(
        actions, "check", check, "connect with a remote once and say what it allows"
    )
    remove_parser = add_action(
        actions, "remove", remove, "remove a bridge: what waits for its remote is lost"
    )
    start_parser = add_action(actions, "start", start, "start a bridge that was stopped")
    stop_parser = add_action(actions, "stop", stop, "stop a bridge; its queue goes on filling")
    messages_parser = add_action(
        actions, "messages", messages, "print where messages of a bridge are"
    )
    named = (show_parser, add_parser, check_parser, remove_parser, start_parser, stop_parser)
    for each in (*named, messages_parser):
        each.add_argument("name", type=name_given, metavar="BRIDGE", help="its name")
    for each in (add_parser, check_parser):
        _add_fields(each)
    messages_parser.add_argument(
        "--from",
        dest="from_offset",
        metavar="OFFSET",
        type=int,
        help="from this one on (default: the first that is not acknowledged)",
    )
    messages_parser.add_argument(
        "--limit", metavar="COUNT", type=row_count, default=100, help="at most (default: 100)"
    )


def _add_fields(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it is")
    group.add_argument(
        "--file", metavar="FILE", type=Path, help="a TOML file with the fields of [[bridge]]"
    )
    group.add_argument("--address", metavar="URL", help="mqtt://host:1883, mqtts://, ws://, wss://")
    for option, field, about in (
        ("--out", "out", "carry what matches to the remote"),
        ("--in", "inward", "take what matches from the remote"),
    ):
        group.add_argument(
            option, dest=field, action="append", default=[], metavar="FILTER[=TOPIC]", help=about
        )
    group.add_argument("--user", metavar="NAME", help="the user name at the remote")
    group.add_argument(
        "--password-stdin", action="store_true", help="read the password from standard input"
    )
    group.add_argument(
        "--password-file", metavar="FILE", help="a file of the broker's machine with the password"
    )


def show_all(options: argparse.Namespace) -> int:
    """Print bridges."""
    found = rows(broker_of(options), "/v1/bridges", "bridges", {}, LIMIT_DEFAULT)
    return print_rows(found if options.json else map(_flat, found), COLUMNS, options)


def watch(options: argparse.Namespace) -> int:
    """Show bridges until q is pressed."""
    broker = broker_of(options)
    return show_frames(lambda: frame(_all(broker)), once=options.json)


def show(options: argparse.Namespace) -> int:
    """Print one bridge."""
    return _print(broker_of(options).get(_path(options.name)), options)


def add(options: argparse.Namespace) -> int:
    """Make one, or change it."""
    broker, fields = broker_of(options), _fields(options)
    if options.replace:
        return _print(broker.put(_path(options.name), fields), options)
    return _print(broker.post("/v1/bridges", fields), options)


def check(options: argparse.Namespace) -> int:
    """Connect once; without a remote as the bridge of this name does, but for what is given."""
    broker = broker_of(options)
    if options.file is None and options.address is None:
        given, fields = _given(options), broker.get(_path(options.name))["settings"]
        if PASSWORDS & given.keys():
            fields = {name: value for name, value in fields.items() if name not in PASSWORDS}
        fields |= given
    else:
        fields = _fields(options)
    found = broker.post("/v1/bridges/check", fields)
    _print(found, options)
    return 0 if found["accepted"] else EXIT_REFUSED


def remove(options: argparse.Namespace) -> int:
    """Remove it."""
    broker_of(options).delete(_path(options.name))
    return 0


def start(options: argparse.Namespace) -> int:
    """Start it."""
    return _print(broker_of(options).post(_path(options.name, "/start")), options)


def stop(options: argparse.Namespace) -> int:
    """Stop it."""
    return _print(broker_of(options).post(_path(options.name, "/stop")), options)


def messages(options: argparse.Namespace) -> int:
    """Print offsets with where each message is."""
    query = {"limit": options.limit}
    if options.from_offset is not None:
        query["from"] = options.from_offset
    page = broker_of(options).get(_path(options.name, "/messages"), query)
    found: Iterator[dict[str, Any]] = iter(page["messages"])
    print_rows(
        found if options.json else map(_timed, found),
        ("offset", "state", "since_us", "reason"),
        options,
    )
    if page["next_offset"] is not None:
        print(f"more from offset {page['next_offset']} on: --from", file=sys.stderr)
    return 0


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    since_us = row["since_us"]
    return row | {"since_us": None if since_us is None else moment(since_us)}


def _all(broker: HttpClient) -> list[dict[str, Any]]:
    return list(rows(broker, "/v1/bridges", "bridges", {}, LIMIT_DEFAULT))


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a file, and those of the options over them."""
    found: dict[str, Any] = {}
    if options.file is not None:
        try:
            found = tomllib.loads(options.file.read_text())
            _check_values(found, "")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{options.file}: {error}") from error
    found |= _given(options)
    if "address" not in found:
        raise ConfigurationError("where is the remote? --address or a file with it says so")
    return found


def _given(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"name": options.name}
    if options.address is not None:
        found["address"] = options.address
    for name, written in (
        ("local_subscriptions", options.out),
        ("remote_subscriptions", options.inward),
    ):
        if written:
            found[name] = [_subscription(text) for text in written]
    if options.user is not None:
        found["user_name"] = options.user
    if options.password_file is not None:
        found["password_file"] = options.password_file
    if options.password_stdin:
        found["password"] = sys.stdin.readline().rstrip("\n")
    return found


def _check_values(value: object, where: str) -> None:
    """Raises `ValueError` for what JSON cannot carry to the broker, such as the dates of TOML."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_values(inner, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            _check_values(inner, f"{where} {number}")
    elif not isinstance(value, str | int):
        raise ValueError(
            f"{where} is {value}, which no setting of a bridge can be: they are text, whole"
            " numbers, true and false"
        )


def _subscription(written: str) -> dict[str, Any]:
    topic_filter, separator, destination = written.partition("=")
    found: dict[str, Any] = {"filters": [topic_filter]}
    return found | ({"destination": destination} if separator else {})


def _print(found: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    settings, events = found.pop("settings", {}), found.pop("events", [])
    found |= found.pop("allows", None) or {}
    warnings, lost = found.pop("warnings", []), found.pop("lost", {})
    for name, value in found.items():
        is_time = name.endswith("_us") and value is not None
        shown = None if value == "" else value
        print(f"{name.removesuffix('_us'):<26} {moment(value) if is_time else cell(shown)}")
    for reason, count in lost.items():
        print(f"{'lost':<26} {count} {reason}")
    for name, value in settings.items():
        print(f"{'settings':<26} {name} = {printable(json.dumps(value))}")
    for event in events:
        topic_name, detail = event["topic_name"], event["detail"]
        about = "" if topic_name is None else f"{printable(topic_name)}: "
        told = f"{event['kind']} {about}{printable(detail)}"
        print(f"{'event':<26} {moment(event['at_us'])} {told}")
    for sentence in warnings:
        print(f"{'warning':<26} {printable(sentence)}")
    return 0


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table; a plus stands behind what is at least so much."""
    return {
        **row,
        "waiting": row["waiting"] if row["exact"] else f"{row['waiting']}+",
        "lost": sum(row["lost"].values()),
        "last_error": row["last_error"] or None,
    }


def _path(name: str, action: str = "") -> str:
    return f"/v1/bridges/{quote(name, safe='')}{action}"
