"""`holdfast verify isolation`: environments played against a running broker, and what each got.

Owns: what is printed and which verdict it comes to. Never: counts.
"""

import argparse
import asyncio
import json
from collections.abc import Iterable
from getpass import getpass
from ssl import create_default_context
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast import system
from holdfast.cli.options import Subparsers
from holdfast.client.isolation import MIXED, Got, IncompleteError, Isolation
from holdfast.client.mqtt import ClientOptions
from holdfast.core.errors import ConfigurationError

MESSAGES_DEFAULT: Final = 600
"""As many as three and two and four pods share evenly."""
MESSAGES_MAXIMUM: Final = 100_000
PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
WORD_BYTES: Final = 4
Act = tuple[str, str, list[Got]]
"""The numbers of behaviours, what happens, and who got what."""


def add_to(actions: Subparsers) -> None:
    """Make the action known."""
    parser = actions.add_parser(
        "isolation",
        help="play environments against a running broker, and count what each gets",
        description="Play three environments against a running broker, publish reads, and count"
        " what each gets and how its pods share it; with one more pod, while one is away, and with"
        " one group for all of them. It is done with its own topic, and leaves nothing.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "broker", metavar="BROKER", help="mqtt://HOST[:PORT] or mqtts://USER@HOST[:PORT]"
    )
    parser.add_argument("--ca", metavar="FILE", help="authorities that the broker is believed by")
    parser.add_argument(
        "--messages",
        metavar="COUNT",
        type=int,
        default=MESSAGES_DEFAULT,
        help=f"how many are published in each act (default: {MESSAGES_DEFAULT})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each act")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play, print, and say what it comes to."""
    if not 1 <= options.messages <= MESSAGES_MAXIMUM:
        raise ConfigurationError(f"--messages is a number from 1 to {MESSAGES_MAXIMUM}")
    place, credentials = _broker(options)
    try:
        acts, refused = asyncio.run(_play(place, credentials, options.messages))
    except IncompleteError as error:
        print(f"FAILED: {error}")
        return 1
    for numbers, title, found in acts:
        if options.json:
            print(json.dumps(_document(numbers, title, found)))
        else:
            _print(numbers, title, found)
    wrong = [title for _, title, found in acts if not all(map(_is_whole, found))]
    if not options.json:
        print(_verdict(wrong, refused))
    return 1 if wrong else 0


async def _play(
    place: tuple[str, int], credentials: dict[str, Any], messages: int
) -> tuple[list[Act], str]:
    def client_options(session_s: int) -> ClientOptions:
        # Clean Start 0 and an interval of 0 would be kept for session.ttl_s.
        return ClientOptions(
            clean_start=not session_s, session_expiry_interval_s=session_s, **credentials
        )

    play = Isolation(place, client_options, system.entropy(WORD_BYTES).hex(), messages)
    refused = ""
    try:
        await play.begin()
        acts: list[Act] = [
            ("S3.1 S3.2 S3.3 S3.6", "each environment has its own group", await play.share()),
            ("S3.5", "one more pod for prod", await play.add_pod()),
            ("S3.4", "the laptop is away meanwhile, and comes back", await play.be_away()),
        ]
        try:
            acts.append(("S3.7", f"{MIXED} pods of all of them in one group", await play.mix()))
        except IncompleteError as error:
            refused = str(error)
    finally:
        await play.end()
    return acts, refused


def _broker(options: argparse.Namespace) -> tuple[tuple[str, int], dict[str, Any]]:
    parts = urlsplit(options.broker)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{parts.netloc!r} names no port: {error}") from error
    if host is None or parts.scheme not in PORTS:
        raise ConfigurationError("expected the broker's address as mqtts://USER@HOST:PORT")
    credentials: dict[str, Any] = {}
    if parts.username is not None:
        user = unquote(parts.username)
        password = parts.password
        secret = getpass(f"Password of {user}: ") if password is None else unquote(password)
        credentials |= {"user_name": user, "password": secret.encode()}
    if parts.scheme == "mqtts":
        credentials["tls"] = create_default_context(cafile=options.ca)
    return (host, PORTS[parts.scheme] if port is None else port), credentials


def _is_whole(got: Got) -> bool:
    return not got.missing and not got.repeated


def _document(numbers: str, title: str, found: Iterable[Got]) -> dict[str, Any]:
    environments = [
        {
            "environment": got.environment,
            "published": got.expected,
            "missing": got.missing,
            "repeated": got.repeated,
            "by_pod": [len(each) for each in got.by_pod],
            "shares": [round(share, 4) for share in got.shares],
        }
        for got in found
    ]
    return {"behaviours": numbers.split(), "title": title, "environments": environments}


def _print(numbers: str, title: str, found: Iterable[Got]) -> None:
    print(f"{title} ({numbers})")
    for got in found:
        total = sum(len(each) for each in got.by_pod)
        shares = "  ".join(f"{share:.0%}" for share in got.shares)
        flaws = f"  {got.missing} missing, {got.repeated} repeated" if not _is_whole(got) else ""
        print(f"  {got.environment:<8} {total:>6} of {got.expected}  pods: {shares}{flaws}")
    print()


def _verdict(wrong: list[str], refused: str) -> str:
    if wrong:
        return f"FAILED: something is missing or came twice: {'; '.join(wrong)}"
    if refused:
        return f"ok: each environment got everything, once. One group for all is refused: {refused}"
    return (
        "ok: each environment got everything, once. In one group for all of them each pod gets a"
        " part: environments need groups of their own."
    )
