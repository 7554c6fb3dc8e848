"""`holdfast user`: who may connect, and what each may do.

Works on the running broker, or on its data directory while none runs. A password is asked for or
read from standard input; it is never an argument, which every process of the machine could read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from getpass import getpass
from typing import Any, Final

from holdfast.cli.asking import cell
from holdfast.cli.options import Subparsers, add_settings, effective
from holdfast.cli.users import Users, users_of
from holdfast.core.client_type import CLIENT_TYPES
from holdfast.core.errors import ConfigurationError

PAGE: Final = 500
"""Users that are fetched at once."""
PASSWORD_LINE_MAXIMUM: Final = 65_536
"""Characters that are read from standard input; a password is shorter."""
ACTIONS: Final = ("publish", "subscribe", "receive", "all")
CHANGEABLE: Final = (
    "client_identifiers",
    "client_type",
    "messages_per_second",
    "bytes_per_second",
)
"""What `set` takes, each an option of `add` as well."""
OWNER_HELP: Final = "a user, `everyone`, or `anonymous` for clients without a credential"

Run = Callable[[argparse.Namespace], int]


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "user",
        help="set up who may connect, and what each may do",
        description="Set up who may connect, and what each may do. Works on the running broker,"
        " at once, or on its data directory while none runs.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_add(actions)
    _action(actions, "remove", remove, "remove a user with its rules, and end its connections")
    _action(actions, "disable", disable, "let a user connect no more, and end its connections")
    _action(actions, "enable", enable, "let a user connect again")
    password_parser = _action(
        actions, "password", password, "give a user a new password, and end its connections"
    )
    _add_password_stdin(password_parser)
    set_parser = _action(actions, "set", set_user, "change what a user may do or is")
    _add_changeable(set_parser)
    show_parser = _action(actions, "show", show_user, "print one user")
    show_parser.add_argument("--json", action="store_true", help="print JSON")
    list_parser = _action(actions, "list", list_users, "print all users", name=False)
    list_parser.add_argument("--json", action="store_true", help="print JSON")
    for word in ("allow", "deny"):
        _add_rule(actions, word)
    _add_rules(actions)


def add(options: argparse.Namespace) -> int:
    """Add a user."""
    fields = {
        "name": options.name,
        "proof": options.proof,
        "client_identifiers": options.client_identifiers,
        "administrator": options.administrator,
        "reader": options.reader,
        "allow": options.allow,
        "messages_per_second": options.messages_per_second,
        "bytes_per_second": options.bytes_per_second,
        "client_type": options.client_type or "DEVICE",
    }
    new = _new_password(options) if options.proof == "password" else None
    _with_users(options, lambda users: users.add(fields, new))
    if not options.allow:
        print(
            f"{options.name} may connect, and do what the rules for `everyone` allow; allow more"
            f" with: holdfast user allow {options.name} all 'topic/filter/#'"
        )
    return 0


def remove(options: argparse.Namespace) -> int:
    """Remove a user."""
    return _with_users(options, lambda users: users.remove(options.name))


def disable(options: argparse.Namespace) -> int:
    """Disable a user."""
    return _with_users(options, lambda users: users.change(options.name, {"enabled": False}, None))


def enable(options: argparse.Namespace) -> int:
    """Enable a user."""
    return _with_users(options, lambda users: users.change(options.name, {"enabled": True}, None))


def set_user(options: argparse.Namespace) -> int:
    """Change a user."""
    given = {key: getattr(options, key) for key in CHANGEABLE}
    fields = {key: value for key, value in given.items() if value is not None}
    if not fields:
        raise ConfigurationError("say what is to be changed")
    return _with_users(options, lambda users: users.change(options.name, fields, None))


def show_user(options: argparse.Namespace) -> int:
    """Print one user."""

    def show(users: Users) -> None:
        found = users.find(options.name)
        if options.json:
            print(json.dumps(found, indent=2))
            return
        for key, value in found.items():
            print(f"{key:<20} {cell(value)}")

    return _with_users(options, show)


def password(options: argparse.Namespace) -> int:
    """Change a user's password."""
    new = _new_password(options)
    fields = {"proof": "password"}
    return _with_users(options, lambda users: users.change(options.name, fields, new))


def list_users(options: argparse.Namespace) -> int:
    """Print all users."""

    def show(users: Users) -> None:
        found = list(_pages(users.page, "name"))
        if options.json:
            print(json.dumps(found, indent=2))
            return
        rows = [("user", "proved by", "type", "client identifiers", "rules", "")]
        rows += [
            (
                row["name"],
                row["proof"],
                row["client_type"],
                row["client_identifiers"] or "any",
                str(row["rules"]),
                " ".join(_remarks(row)),
            )
            for row in found
        ]
        _print_table(rows)

    return _with_users(options, show)


def add_rule(options: argparse.Namespace) -> int:
    """Add a rule."""
    fields = {
        "action": options.action,
        "topic_filter": options.topic_filter,
        "allowed": options.allowed,
    }
    if options.at is not None:
        fields["at"] = options.at
    return _with_users(options, lambda users: users.add_rule(options.owner, fields))


def rules(options: argparse.Namespace) -> int:
    """Print rules, or remove one."""

    def show(users: Users) -> None:
        if options.remove is not None:
            users.remove_rule(options.owner, options.remove)
            return
        if options.owner is None:
            found = list(_pages(users.rules_page, "owner"))
        else:
            found = [{"owner": options.owner, "rules": users.rules(options.owner)}]
        if options.json:
            print(json.dumps(found, indent=2))
            return
        _print_table([row for owner in found for row in _rule_rows(owner)])

    if options.remove is not None and options.owner is None:
        raise ConfigurationError("say whose rule is to be removed")
    return _with_users(options, show)


def _add_add(actions: Subparsers) -> None:
    parser = _action(actions, "add", add, "add a user; asks for the password")
    proofs = parser.add_mutually_exclusive_group()
    _add_password_stdin(proofs)
    proofs.add_argument(
        "--certificate",
        dest="proof",
        action="store_const",
        const="certificate",
        help="it is proved by a client certificate whose common name is NAME",
    )
    proofs.add_argument(
        "--identifier",
        dest="proof",
        action="store_const",
        const="identifier",
        help="nothing proves it but a client identifier that --client-identifiers matches",
    )
    parser.set_defaults(proof="password")
    parser.add_argument(
        "--allow",
        metavar="FILTER",
        action="append",
        default=[],
        help="topics with which it may do everything; %%c is the client identifier, %%u the user"
        " name. May be given several times. Without it a user may do nothing but what the rules for"
        " `everyone` allow",
    )
    parser.add_argument(
        "--administrator", action="store_true", help="it may use the administration over HTTP"
    )
    parser.add_argument(
        "--reader",
        action="store_true",
        help="it may read all messages of the log over HTTP, as PySpark does, and nothing else",
    )
    _add_changeable(parser)


def _add_changeable(parser: Any) -> None:
    parser.add_argument(
        "--client-identifiers",
        metavar="PATTERN",
        help="the client identifiers it may use: * is anything, %%u its name (default: any)",
    )
    parser.add_argument(
        "--client-type",
        choices=CLIENT_TYPES,
        help="what its clients are, from their next connection on: APPLICATION for a service with a"
        " queue of its own (default: DEVICE)",
    )
    for key in ("messages_per_second", "bytes_per_second"):
        parser.add_argument(
            f"--{key.replace('_', '-')}",
            type=int,
            metavar="NUMBER",
            help=f"instead of the setting limits.client_{key}; 0: no limit",
        )


def _add_rule(actions: Subparsers, word: str) -> None:
    parser = _action(
        actions,
        word,
        add_rule,
        f"add a rule that {'allows' if word == 'allow' else 'denies'} something",
        name=False,
        description="The first rule that matches decides: first the rules of the user, in their"
        " order, then those for everyone. Whoever may subscribe may receive, unless a rule for"
        " receive says otherwise before.",
    )
    parser.add_argument("owner", metavar="USER", help=OWNER_HELP)
    parser.add_argument("action", choices=ACTIONS, help="what it is about")
    parser.add_argument(
        "topic_filter",
        metavar="FILTER",
        help="which topics; %%c stands for the client identifier, %%u for the user name",
    )
    parser.add_argument(
        "--at", type=int, metavar="NUMBER", help="make it rule NUMBER instead of the last"
    )
    parser.set_defaults(allowed=word == "allow")


def _add_rules(actions: Subparsers) -> None:
    parser = _action(actions, "rules", rules, "print rules, or remove one", name=False)
    parser.add_argument("owner", metavar="USER", nargs="?", help=OWNER_HELP + " (default: all)")
    parser.add_argument("--remove", type=int, metavar="NUMBER", help="remove this rule")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _action(
    actions: Subparsers,
    word: str,
    run: Run,
    summary: str,
    *,
    name: bool = True,
    description: str = "",
) -> Any:
    whole = f"{summary[0].upper()}{summary[1:]}. {description}".strip()
    parser = actions.add_parser(word, help=summary, description=whole, allow_abbrev=False)
    if name:
        parser.add_argument("name", metavar="NAME", help="the user's name")
    add_settings(parser, "data.dir")
    parser.set_defaults(run=run)
    return parser


def _add_password_stdin(parser: Any) -> None:
    parser.add_argument(
        "--password-stdin",
        action="store_true",
        help="read the password from standard input, up to the end of the line",
    )


def _with_users(options: argparse.Namespace, act: Callable[[Users], object]) -> int:
    with users_of(effective(options).config) as users:
        act(users)
    return 0


def _new_password(options: argparse.Namespace) -> str:
    if options.password_stdin:
        new = sys.stdin.readline(PASSWORD_LINE_MAXIMUM).rstrip("\r\n")
    else:
        new = getpass("New password: ")
        if new != getpass("The same again: "):
            raise ConfigurationError("the two passwords are not the same")
    if not new:
        raise ConfigurationError("the password is empty")
    return new


def _pages(page: Callable[[str, int], list[dict[str, Any]]], key: str) -> Iterator[dict[str, Any]]:
    after = ""
    while found := page(after, PAGE):
        yield from found
        after = found[-1][key]


def _remarks(row: dict[str, Any]) -> Iterator[str]:
    if row["administrator"]:
        yield "administrator"
    if row["reader"]:
        yield "reader"
    if not row["enabled"]:
        yield "disabled"
    for key in ("messages_per_second", "bytes_per_second"):
        if row[key] is not None:
            yield f"{key}={row[key]}"


def _rule_rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for rule in found["rules"]:
        word = "allow" if rule["allowed"] else "deny"
        yield (found["owner"], str(rule["number"]), word, rule["action"], rule["topic_filter"])


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(f"{cell:<{width}}" for cell, width in cells).rstrip())
