"""`holdfast reload`: the running broker reads its settings again, and says what came of it."""

import argparse

from holdfast.cli.options import Subparsers, add_settings, effective
from holdfast.client.http import HttpClient


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "reload",
        help="have the running broker read its settings again",
        description="Have the broker that runs on the data directory read its settings again, as"
        " SIGHUP does: the file that it was started with, its environment and its options. What can"
        " change does, what needs a restart is named, and a wrong file changes nothing.",
        allow_abbrev=False,
    )
    add_settings(parser, "data.dir")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    outcome = HttpClient.on(effective(options).config.data_dir).post("/v1/configuration/reload")
    for key in outcome["changed"]:
        print(f"changed: {key}")
    for key in outcome["need_a_restart"]:
        print(f"needs a restart: {key}")
    if not outcome["changed"] and not outcome["need_a_restart"]:
        print("no setting is different; certificates, where it has any, were read again")
    return 0
