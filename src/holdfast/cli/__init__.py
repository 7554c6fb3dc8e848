"""The command line: `holdfast serve`, and commands that look at its files or ask it.

Owns: what an operator types and reads. Never: decides anything about messages; it finds the
settings, calls one part, and says in one sentence what went wrong.

Invariants:
1. Exit code 0: done. 1: the world was in the way. 2: what was asked for cannot be right. 3: the
   broker was ended before its stop was complete.
2. Whatever stops a command is one sentence on standard error; a traceback is told before
   it only to who asks for that.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from holdfast import __version__
from holdfast.core.errors import ConfigurationError, OperatingError
from holdfast.kernel import DamagedError, NewerFormatError, PoisonedError

COMMANDS: Final = {
    "serve": "serve_command",
    "reload": "reload_command",
    "config": "config_command",
    "log": "log_command",
    "backup": "backup_command",
    "restore": "backup_command",
    "session": "session_command",
    "group": "group_command",
    "queue": "queue_command",
    "cursor": "cursor_command",
    "environment": "environment_command",
    "bridge": "bridge_command",
    "retained": "retained_command",
    "losses": "losses_command",
    "top": "top_command",
    "certs": "certs_command",
    "pipeline": "pipeline_command",
    "processors": "processors_command",
    "user": "user_command",
    "verify": "verify_command",
}
"""In which module of this folder each command is. Only that of the one that was asked for is
loaded: all together take as long as a sixth of a broker's start."""
EXIT_DONE = 0
EXIT_WORLD = 1
EXIT_REQUEST = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given[0] if given else "").parse_args(given)
    try:
        return int(options.run(options))
    except ConfigurationError as error:
        return _stop(error, EXIT_REQUEST)
    except BrokenPipeError:
        # Whoever read our output has seen enough (`holdfast log records | head`). Standard output
        # is let go, so that the interpreter's last flush does not complain.
        sys.stdout = None
        return EXIT_DONE
    except (OperatingError, OSError, DamagedError, NewerFormatError, PoisonedError) as error:
        return _stop(error, EXIT_WORLD)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _stop(error: Exception, code: int) -> int:
    print(f"holdfast: {error}", file=sys.stderr)
    return code


def parser(command: str = "") -> argparse.ArgumentParser:
    """What reads this command; without one that there is, what reads and explains them all."""
    found = argparse.ArgumentParser(
        prog="holdfast",
        description="Durable messaging for fleets of devices: MQTT and Pulsar on one log.",
        allow_abbrev=False,
    )
    found.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    all_of_them = dict.fromkeys(COMMANDS.values())
    for module in [COMMANDS[command]] if command in COMMANDS else all_of_them:
        import_module(f"holdfast.cli.{module}").add_to(commands)
    return found
