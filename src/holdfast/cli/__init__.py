"""The command line: `holdfast serve`, and commands that look at its files or ask it.

Owns: what an operator types and reads. Never: decides anything about messages; it finds the
settings, calls one part, and says in one sentence what went wrong.

Invariants:
1. Exit code 0: done. 1: the world was in the way. 2: what was asked for cannot be right. 3: the
   broker was ended before its stop was complete.
2. Whatever stops a command is one sentence on standard error, never a traceback.
"""

import argparse
import sys
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli import (
    backup_command,
    bridge_command,
    certs_command,
    config_command,
    cursor_command,
    environment_command,
    group_command,
    log_command,
    losses_command,
    pipeline_command,
    processors_command,
    queue_command,
    reload_command,
    retained_command,
    serve_command,
    session_command,
    top_command,
    user_command,
    verify_command,
)
from holdfast.core.errors import ConfigurationError, OperatingError
from holdfast.kernel import DamagedError, NewerFormatError, PoisonedError

EXIT_DONE = 0
EXIT_WORLD = 1
EXIT_REQUEST = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Durable messaging for fleets of devices: MQTT and Pulsar on one log.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve_command.add_to(commands)
    reload_command.add_to(commands)
    config_command.add_to(commands)
    log_command.add_to(commands)
    backup_command.add_to(commands)
    session_command.add_to(commands)
    group_command.add_to(commands)
    queue_command.add_to(commands)
    cursor_command.add_to(commands)
    environment_command.add_to(commands)
    bridge_command.add_to(commands)
    retained_command.add_to(commands)
    losses_command.add_to(commands)
    top_command.add_to(commands)
    certs_command.add_to(commands)
    pipeline_command.add_to(commands)
    processors_command.add_to(commands)
    user_command.add_to(commands)
    verify_command.add_to(commands)
    return parser
