"""`holdfast processors`: services that take messages into tables, and their configuration.

Nothing of `holdfast.processors` is imported before one of these commands runs, since the others
shall not wait for it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import dead_letters_command
from holdfast.cli.options import Subparsers
from holdfast.core.errors import ConfigurationError, OperatingError

if TYPE_CHECKING:
    from holdfast.processors.configuration import Configuration, Configured
    from holdfast.processors.processor import Processor
    from holdfast.processors.settings import ProcessorSettings

LINES_MAXIMUM: Final = 100
"""Log lines of one kind in a second."""
EXIT_WRONG: Final = 2

Action = Callable[[argparse.Namespace], int]


class ProcessorEndedError(OperatingError):
    """A processor could not go on; its sentence says why."""

    retriable = False


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "processors",
        help="take messages into tables, each once",
        description="Take messages from a broker into tables, each once.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    run_parser = _add_action(
        actions, "run", run, "run the processors that are enabled, or those named"
    )
    run_parser.add_argument("names", metavar="NAME", nargs="*", help="only these")
    check_parser = _add_action(
        actions, "check", check, "say what would be effective, and where each value came from"
    )
    check_parser.add_argument("--json", action="store_true", help="print JSON")
    dead_letters_command.add_to(actions, add_configuration, _settings)
    new_parser = actions.add_parser(
        "new",
        help="write a first processor and its configuration",
        description="Write a first processor and its configuration, and say what to do next.",
        allow_abbrev=False,
    )
    new_parser.add_argument("name", metavar="NAME", help="its name, such as Temperatures")
    new_parser.add_argument(
        "--directory", metavar="DIR", type=Path, default=Path(), help="where (default: here)"
    )
    new_parser.set_defaults(run=new)


def add_configuration(parser: Any) -> None:
    """The options that say which configuration is meant."""
    parser.add_argument("file", metavar="FILE", type=Path, help="such as appsettings.json")
    parser.add_argument(
        "--deployment",
        metavar="NAME",
        help="lay FILE's sibling of this name over it, such as appsettings.Production.json for"
        " Production (default: HOLDFAST_DEPLOYMENT, DOTNET_ENVIRONMENT, ASPNETCORE_ENVIRONMENT)",
    )
    parser.add_argument(
        "--dev",
        action="store_true",
        help="this is development: without EnvironmentId the environment is named for this machine"
        " (the same: HOLDFAST_BUILD=development)",
    )


def configuration(options: argparse.Namespace) -> "Configuration":
    """What these options name. Raises `ConfigurationError`."""
    from holdfast.processors.deployed import read_deployed

    return read_deployed(options.file, deployment=options.deployment, is_development=options.dev)


def _settings(options: argparse.Namespace) -> "ProcessorSettings":
    (chosen,) = configuration(options).chosen([options.name])
    return chosen.settings


def run(options: argparse.Namespace) -> int:
    """Run processors until SIGTERM or SIGINT."""
    import asyncio

    from holdfast.broker import log_lines
    from holdfast.processors import serve
    from holdfast.processors.configuration import WrongConfigurationError
    from holdfast.processors.review import doubts, shared_sessions
    from holdfast.processors.session import ProcessorEndedError as EndedError
    from holdfast.processors.sink import SinkUnfitError

    chosen = configuration(options).chosen(options.names)
    made, problems = _made(chosen, options.file.parent)
    together = [each.settings for each in chosen]
    for settings in together:
        said = shared_sessions(settings, together)
        problems += [f"Mqtt.{settings.name}: {sentence}" for sentence in said]
    if problems:
        raise WrongConfigurationError(problems)
    log_lines.begin("info", LINES_MAXIMUM)
    for each in chosen:
        for sentence in doubts(each.settings):
            print(f"holdfast: {each.settings.name}: warning: {sentence}", file=sys.stderr)
    try:
        asyncio.run(serve([(made[each.settings.name], each.settings) for each in chosen]))
    except (EndedError, SinkUnfitError) as error:
        raise ProcessorEndedError(str(error)) from error
    return 0


def check(options: argparse.Namespace) -> int:
    """Print what would be effective, or everything that is wrong."""
    from holdfast.processors.configuration import WrongConfigurationError

    try:
        found = configuration(options)
    except WrongConfigurationError as wrong:
        return _tell(wrong.problems)
    _, problems = _made(found.processors, options.file.parent)
    if problems:
        return _tell(problems)
    if options.json:
        print(json.dumps(_in_json(found), indent=2))
        return 0
    for each in found.processors:
        print(each.settings.name)
        widths = [max(len(getattr(v, of)) for v in each.values) for of in ("name", "shown")]
        for value in each.values:
            print(f"  {value.name:<{widths[0]}}  {value.shown:<{widths[1]}}  {value.place}")
        for sentence in _doubts(each, found):
            print(f"  warning: {sentence}")
    for name, place in found.disabled.items():
        print(f"{name} is not enabled ({place})")
    return 0


def new(options: argparse.Namespace) -> int:
    """Write a first processor."""
    from holdfast.cli.first_processor import write_first

    source, file = write_first(options.name, options.directory)
    table = source.stem
    lines = [
        "holdfast serve                                  # a broker, in another terminal",
        f"holdfast processors check {file} --dev",
        f"holdfast processors run {file} --dev",
        f"mosquitto_pub -V 5 -q 1 -t {table}/attic -m '{{\"value\": 21.5}}'",
        f"sqlite3 {file.with_name(table)}.db '.dump {table}'",
    ]
    print(f"{source} and {file} are written. Next:\n")
    print("\n".join(f"  {line}" for line in lines))
    return 0


def _add_action(actions: Subparsers, word: str, action: Action, about: str) -> Any:
    parser = actions.add_parser(
        word, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False
    )
    add_configuration(parser)
    parser.set_defaults(run=action)
    return parser


def _made(
    configured: "Sequence[Configured]", folder: Path
) -> tuple[Mapping[str, "Processor"], list[str]]:
    """The processors by their names, and what is wrong with what their configuration names."""
    from holdfast.processors.classes import make_processor
    from holdfast.processors.sinks import open_sink

    made: dict[str, Processor] = {}
    problems: list[str] = []
    for each in configured:
        settings = each.settings
        try:
            made[settings.name] = make_processor(settings.name, each.class_reference, folder)
        except ConfigurationError as error:
            problems.append(str(error))
        try:
            open_sink(settings.sink)
        except ConfigurationError as error:
            problems.append(f"Mqtt.{settings.name}.Sink: {error}")
        files = (settings.tls_authority, settings.tls_certificate, settings.tls_key)
        for key, file in zip(("TlsAuthority", "TlsCertificate", "TlsKey"), files, strict=True):
            if settings.tls and file is not None and (reason := _unreadable(file)):
                problems.append(f"Mqtt.{settings.name}.{key}: {file} cannot be read: {reason}")
    return made, problems


def _unreadable(file: str) -> str | None:
    try:
        with Path(file).open("rb"):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _tell(problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"holdfast: {problem}", file=sys.stderr)
    return EXIT_WRONG


def _doubts(each: "Configured", found: "Configuration") -> list[str]:
    """Those of one processor, were it run with all others."""
    from holdfast.processors.review import doubts, shared_sessions

    among = [other.settings for other in found.processors]
    return [*doubts(each.settings), *shared_sessions(each.settings, among)]


def _in_json(found: "Configuration") -> dict[str, Any]:
    processors = {
        each.settings.name: {
            "values": {v.name: {"value": v.shown, "origin": v.place} for v in each.values},
            "doubts": _doubts(each, found),
        }
        for each in found.processors
    }
    return {"processors": processors, "disabled": dict(found.disabled)}
