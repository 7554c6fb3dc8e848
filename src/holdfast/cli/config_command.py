"""`holdfast config`: each effective value with where it came from, and whether all are right."""

import argparse
import json

from holdfast.cli.options import Subparsers, add_settings, effective
from holdfast.core.config import SETTINGS


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "config",
        help="look at the settings",
        description="Look at the settings, without starting anything.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show_parser = actions.add_parser(
        "show",
        help="print each effective value and where it came from",
        description="Print each setting's effective value and where it came from: default, file,"
        " environment or command line. Takes the options of `holdfast serve`.",
        allow_abbrev=False,
    )
    show_parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(show_parser)
    show_parser.set_defaults(run=show)
    check_parser = actions.add_parser(
        "check",
        help="say whether the settings are right, bridges among them",
        description="Say whether the settings are right, those of bridges among them, and what is"
        " doubtful in them. Takes the options of `holdfast serve`.",
        allow_abbrev=False,
    )
    add_settings(check_parser)
    check_parser.set_defaults(run=check)


def show(options: argparse.Namespace) -> int:
    """Print the table of settings."""
    settings = effective(options)
    rows = [
        (name, row.shown_in(settings.config) or "(none)", settings.origins[name])
        for name, row in SETTINGS.items()
    ]
    if options.json:
        table = {name: {"value": value, "origin": origin} for name, value, origin in rows}
        print(json.dumps(table, indent=2))
        return 0
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    for name, value, origin in rows:
        print(f"{name:<{name_width}}  {value:<{value_width}}  {origin}")
    return 0


def check(options: argparse.Namespace) -> int:
    """Say what is doubtful; what is wrong has ended it before."""
    config = effective(options).config
    # Imported here, since the broker's parts take a while to load.
    from holdfast.broker.bridge.bridges import configured
    from holdfast.broker.bridge.review import doubts
    from holdfast.broker.sockets.certificates import check_files

    check_files(config)
    for bridge in configured(config):
        for sentence in doubts(bridge):
            print(f"bridge {bridge.name}: warning: {sentence}")
    print("the settings are right")
    return 0
