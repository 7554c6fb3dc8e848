"""`holdfast config show`: each effective value and where it came from."""

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


def show(options: argparse.Namespace) -> int:
    """Print the table of settings."""
    settings = effective(options)
    rows = [
        (key, row.kind.show(getattr(settings.config, key)) or "(none)", settings.origins[key])
        for key, row in SETTINGS.items()
    ]
    if options.json:
        table = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        print(json.dumps(table, indent=2))
        return 0
    key_width = max(len(key) for key, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    for key, value, origin in rows:
        print(f"{key:<{key_width}}  {value:<{value_width}}  {origin}")
    return 0
