"""`holdfast serve`: the broker in the foreground, until SIGTERM or SIGINT."""

import argparse

from holdfast import system
from holdfast.cli.options import Subparsers, add_settings, effective


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "serve",
        help="start the broker in the foreground",
        description="Start the broker in the foreground. Without any option it listens on loopback"
        " and keeps its data in ./holdfast-data. SIGTERM or Ctrl-C ends it cleanly, a second one at"
        " once; SIGHUP has it read its settings again.",
        allow_abbrev=False,
    )
    add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    system.pause_garbage_collector()
    settings = effective(options)
    # Imported here, since the other commands need neither the event loop nor the kernel's writer.
    from holdfast.broker import serve

    return serve.run(settings, lambda: effective(options))
