"""`holdfast processors dead-letters`: what could not be worked on, and back to where it came from.

Letters have numbers, from 1 on in the order in which they became dead letters. Nothing of
`holdfast.processors` is imported before one of these commands runs.
"""

import argparse
import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.cli.options import Subparsers
from holdfast.core.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.processors.poison import DeadLetter
    from holdfast.processors.settings import ProcessorSettings

REASON_CHARACTERS: Final = 60
T = TypeVar("T")


def add_to(
    actions: Subparsers,
    add_configuration: Callable[[Any], None],
    settings_of: Callable[[argparse.Namespace], "ProcessorSettings"],
) -> None:
    """Make the command known; the functions add and read the options of a configuration."""
    about = "look at messages that could not be worked on, and send them back"
    parser = actions.add_parser(
        "dead-letters", help=about, description=f"{about.capitalize()}.", allow_abbrev=False
    )
    words = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(word: str, run: Callable[[argparse.Namespace], int], about: str) -> Any:
        made = words.add_parser(
            word, help=about, description=f"{about.capitalize()}.", allow_abbrev=False
        )
        add_configuration(made)
        made.add_argument("name", metavar="NAME", help="the processor, as in its configuration")
        made.set_defaults(run=run, settings_of=settings_of)
        return made

    add("list", list_letters, "a line for each, the oldest first").add_argument(
        "--json", action="store_true", help="print JSON, with payloads in base64"
    )
    shown = add("show", show_letter, "one of them, with its properties and payload")
    shown.add_argument("number", metavar="NUMBER", type=int, help="as `list` has it")
    driven = add("drive", drive, "publish them to their own topics again, and keep them no longer")
    driven.add_argument("numbers", metavar="NUMBER", type=int, nargs="*", help="as `list` has it")
    driven.add_argument("--all", action="store_true", help="all of them")


def list_letters(options: argparse.Namespace) -> int:
    """Print a line for each dead letter."""
    letters = _read(options)
    if options.json:
        print(json.dumps([_in_json(number, letter) for number, letter in letters], indent=2))
        return 0
    for number, letter in letters:
        reason = letter.reason[:REASON_CHARACTERS]
        size = len(letter.payload)
        print(f"{number:>4}  {letter.time}  {letter.topic}  {size} B  {letter.attempts}x  {reason}")
    print(f"{len(letters)} dead letters")
    return 0


def show_letter(options: argparse.Namespace) -> int:
    """Print one dead letter."""
    found = dict(_read(options)).get(options.number)
    if found is None:
        raise ConfigurationError(f"there is no dead letter {options.number}")
    told = _in_json(options.number, found)
    told["payload"] = found.payload.decode(errors="backslashreplace")
    for name, value in told.items():
        print(f"{name:<12}{value}")
    return 0


def drive(options: argparse.Namespace) -> int:
    """Send dead letters back."""
    from holdfast.processors.dead_letters import drive_letters

    if bool(options.numbers) == options.all:
        raise ConfigurationError("say which dead letters: their numbers, or --all")
    wanted = None if options.all else set(options.numbers)
    letters = _asked(drive_letters(options.settings_of(options), wanted))
    for letter in letters:
        print(f"{letter.identity} is back in {letter.topic}")
    if wanted is not None and len(letters) < len(wanted):
        raise ConfigurationError(
            f"{len(wanted) - len(letters)} of these numbers are no dead letter"
        )
    return 0


def _read(options: argparse.Namespace) -> "list[tuple[int, DeadLetter]]":
    from holdfast.processors.dead_letters import read_letters

    return _asked(read_letters(options.settings_of(options)))


def _asked(story: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(story)


def _in_json(number: int, letter: "DeadLetter") -> dict[str, Any]:
    from base64 import b64encode

    return {
        "number": number,
        "time": letter.time,
        "topic": letter.topic,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "identity": letter.identity,
        "processor": letter.processor,
        "environment": letter.environment,
        "properties": [list(pair) for pair in letter.properties.get("user_property", ())],
        "payload": b64encode(letter.payload).decode(),
    }
