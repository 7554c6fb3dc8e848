"""`holdfast verify canary`: the controlled disconnect test, again and again.

Owns: the options, and which environment they name. Never: plays or judges a round. Nothing of
processors is imported before the command runs: the others do not wait for it.
"""

import argparse
import math
from typing import TYPE_CHECKING, Final

from holdfast.cli.options import Subparsers
from holdfast.cli.processors_command import (
    LINES_MAXIMUM,
    ProcessorEndedError,
    add_configuration,
    configuration,
)
from holdfast.core.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.processors.settings import ProcessorSettings

EVERY_S: Final = 300.0
READS: Final = 50
READS_MAXIMUM: Final = 10_000
AWAY_S: Final = 10.0
WITHIN_S: Final = 30.0
SECONDS_MAXIMUM: Final = 86_400
PORT_MAXIMUM: Final = 65_535


def add_to(actions: Subparsers) -> None:
    """Make the action known."""
    parser = actions.add_parser(
        "canary",
        help="go away and come back every few minutes, and measure what is lost meanwhile",
        description="For the environment of a configuration: go away every few minutes, have"
        " synthetic reads published, come back, and tell what is lost and how long it takes to"
        " catch up. The exit code is 1 if any round was red.",
        allow_abbrev=False,
    )
    add_configuration(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the processor whose broker it is")
    for option, default, about in (
        ("--every", EVERY_S, "how often a round begins"),
        ("--away", AWAY_S, "how long the consumer is away"),
        ("--within", WITHIN_S, "how long it waits for what is to come"),
    ):
        parser.add_argument(
            option,
            metavar="SECONDS",
            type=float,
            default=default,
            help=f"{about} (default: {default:.0f})",
        )
    parser.add_argument(
        "--reads",
        metavar="COUNT",
        type=int,
        default=READS,
        help=f"how many are published in a round (default: {READS})",
    )
    parser.add_argument(
        "--rounds", metavar="COUNT", type=int, help="end after so many (default: never)"
    )
    parser.add_argument(
        "--metrics-port", metavar="PORT", type=int, help="serve metrics and health here"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play rounds until all are played, or until SIGTERM or SIGINT."""
    import asyncio

    from holdfast.broker import log_lines
    from holdfast.client.canary import Terms
    from holdfast.processors.canary import Schedule, watch
    from holdfast.processors.session import ProcessorEndedError as EndedError

    _check(options)
    settings = _settings(options)
    terms = Terms(
        environment=settings.environment,
        reads=options.reads,
        away_s=options.away,
        within_s=options.within,
    )
    schedule = Schedule(
        every_s=options.every, rounds=options.rounds, metrics_port=options.metrics_port
    )
    log_lines.begin("info", LINES_MAXIMUM)
    try:
        was_red = asyncio.run(watch(settings, terms, schedule))
    except EndedError as error:
        raise ProcessorEndedError(str(error)) from error
    return 1 if was_red else 0


def _settings(options: argparse.Namespace) -> "ProcessorSettings":
    names = [] if options.name is None else [options.name]
    first, *others = (each.settings for each in configuration(options).chosen(names))
    for other in others:
        same = (first.broker_host, first.broker_port, first.environment)
        if (other.broker_host, other.broker_port, other.environment) != same:
            raise ConfigurationError(
                f"{first.name} and {other.name} differ in broker or environment: name one of them"
            )
    return first


def _check(options: argparse.Namespace) -> None:
    for name in ("every", "away", "within"):
        seconds = getattr(options, name)
        if not (math.isfinite(seconds) and 0 < seconds <= SECONDS_MAXIMUM):
            raise ConfigurationError(f"--{name} is more than 0 and at most {SECONDS_MAXIMUM} s")
    if not 1 <= options.reads <= READS_MAXIMUM:
        raise ConfigurationError(f"--reads is a number from 1 to {READS_MAXIMUM}")
    if options.rounds is not None and options.rounds < 1:
        raise ConfigurationError("--rounds is a number from 1")
    if options.metrics_port is not None and not 0 <= options.metrics_port <= PORT_MAXIMUM:
        raise ConfigurationError(f"--metrics-port is a number from 0 to {PORT_MAXIMUM}")
