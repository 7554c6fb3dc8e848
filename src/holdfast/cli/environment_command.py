"""`holdfast environment`: environments that share a running broker: list, look at one, and make one
that begins where another one was."""

import argparse
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from holdfast.cli.asking import add_action, broker_of, cell, group_path, moment, print_rows
from holdfast.cli.options import Subparsers, name_given, time_us
from holdfast.cli.record_text import printable

COLUMNS = ("name", "clients", "groups", "waiting", "in_flight", "thefts")
GROUP_COLUMNS = ("group", "members", "waiting", "in_flight")
LIMIT = 100
"""More than there are."""


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "environment",
        help="look at the environments that share a running broker",
        description="Look at the environments that share a running broker: what each has, and"
        " which of them takes the messages of another one.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_action(actions, "list", show_all, "print environments, and who takes messages of whom")
    one = add_action(actions, "show", show, "print one environment with its groups")
    one.add_argument("environment", type=name_given, metavar="ENVIRONMENT", help="its name")
    made = add_action(
        actions, "fork", fork, "make another group that gets what one has had since a time"
    )
    made.add_argument(
        "name", metavar="NAME", help="the share name of the new group, such as bbu-azure-qa"
    )
    made.add_argument(
        "--from",
        dest="group",
        metavar="GROUP",
        required=True,
        help="the group that it is made from, $share/<name>/<filter>, which stays where it is",
    )
    made.add_argument(
        "--at",
        metavar="TIME",
        help="begin with what was published then: 2026-01-31T12:00 (UTC), or an age: 10m; without"
        " it, with what the other group has not had yet",
    )


def show_all(options: argparse.Namespace) -> int:
    """Print environments, and groups that several of them use."""
    found = broker_of(options).get("/v1/environments", {"limit": LIMIT})
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print_rows(iter(found["environments"]), COLUMNS, options)
    _print_thefts(found["thefts"])
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one environment."""
    path = f"/v1/environments/{quote(options.environment, safe='')}"
    found = broker_of(options).get(path)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    groups, thefts = found.pop("its_groups"), found.pop("its_thefts")
    for name, value in found.items():
        print(f"{name:<20} {cell(value)}")
    if groups:
        print()
        print_rows(iter(groups), GROUP_COLUMNS, options)
    _print_thefts(thefts)
    return 0


def fork(options: argparse.Namespace) -> int:
    """Make another group."""
    body: dict[str, Any] = {"share_name": options.name}
    if options.at is not None:
        body["at_us"] = time_us(options.at)
    made = broker_of(options).post(f"{group_path(options.group)}/fork", body)
    if options.json:
        print(json.dumps(made, indent=2))
        return 0
    print(f"{printable(made['group'])} begins at offset {made['place']} with {made['messages']}")
    print(f"messages; it ends {moment(made['ends_at_us'])} if nobody subscribes to it")
    return 0


def _print_thefts(thefts: Iterable[dict[str, Any]]) -> None:
    for theft in thefts:
        until_us = theft["until_us"]
        until = "now" if until_us is None else moment(until_us)
        print()
        print(f"{printable(theft['group'])}, {moment(theft['since_us'])} to {until}:")
        print(f"  {printable(theft['told'])}; {theft['taken']} so far")
