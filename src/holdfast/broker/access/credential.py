"""Credentials and rules as values, and how control records hold them.

Owns: what a credential and a rule may say. Never: looks one up, or sees a password.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

from holdfast.core.client_type import CLIENT_TYPES, ClientType
from holdfast.core.limits import (
    RULE_FILTER_BYTES_MAXIMUM,
    RULES_PER_OWNER_MAXIMUM,
    USER_NAME_BYTES_MAXIMUM,
)
from holdfast.kernel import is_valid_topic_filter

Proof = Literal["password", "certificate", "identifier"]
Action = Literal["publish", "subscribe", "receive", "all"]
PROOFS: Final = ("password", "certificate", "identifier")
ACTIONS: Final = ("publish", "subscribe", "receive", "all")

EVERYONE: Final = "everyone"
"""Whose rules hold for every client, after the client's own."""
ANONYMOUS: Final = "anonymous"
"""Whose rules hold for clients without a credential."""
RATE_MAXIMUM: Final = 2**32 - 1
"""A rate has 32 bits in the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Who may connect under a name, and how that is proved."""

    name: str
    """The user name, or the common name of a client certificate."""
    proof: Proof
    """`password`; `certificate`: one of this name, verified; `identifier`: its client identifier
    is all that it shows."""
    password_hash: str | None = None
    """Argon2id with its parameters and salt."""
    client_identifiers: str | None = None
    """The client identifiers that it may use: `*` stands for anything, `%u` for the name; `None`
    allows all."""
    administrator: bool = False
    """True: it may use the administration over HTTP. It takes rules to publish and subscribe."""
    reader: bool = False
    """True: it may read the whole log over HTTP, at /v1/log, and nothing else there."""
    enabled: bool = True
    messages_per_second: int | None = None
    """What its clients may send, each; `None`: as configured, 0: without limit."""
    bytes_per_second: int | None = None
    client_type: ClientType = "DEVICE"
    """What its clients are, each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What may or may not be done with the topics of a filter."""

    action: Action
    topic_filter: str
    """`%c` stands for the client identifier, `%u` for the user name."""
    allowed: bool


def check_credential(credential: Credential) -> None:
    """Raises `ValueError` with a reason for what no credential may say."""
    check_name(credential.name)
    proof: object = credential.proof
    if proof not in PROOFS:
        raise ValueError(f'"{credential.proof}" is no proof; one of {", ".join(PROOFS)} is')
    if (credential.proof == "password") != (credential.password_hash is not None):
        raise ValueError("a password belongs to a credential that it proves, and to no other")
    pattern = credential.client_identifiers
    if pattern is not None and not _is_text(pattern, USER_NAME_BYTES_MAXIMUM):
        raise ValueError("the pattern of client identifiers is empty, too long or not text")
    if credential.proof == "identifier" and pattern is None:
        raise ValueError("who shows a client identifier alone needs a pattern that it matches")
    client_type: object = credential.client_type
    if client_type not in CLIENT_TYPES:
        raise ValueError(f'"{client_type}" is no client type; {" or ".join(CLIENT_TYPES)} is')
    rates: tuple[object, ...] = (credential.messages_per_second, credential.bytes_per_second)
    for rate in rates:
        if rate is not None and (type(rate) is not int or not 0 <= rate <= RATE_MAXIMUM):
            raise ValueError(f"a rate is a whole number from 0 to {RATE_MAXIMUM}")
    flags: tuple[object, ...] = (credential.administrator, credential.reader, credential.enabled)
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("administrator, reader and enabled are true or false")


def check_name(name: object) -> None:
    """Raises `ValueError` for what cannot be the name of a user."""
    if not _is_text(name, USER_NAME_BYTES_MAXIMUM):
        raise ValueError(
            f"a user name is text of 1 to {USER_NAME_BYTES_MAXIMUM} bytes without control"
            " characters"
        )
    if name in (EVERYONE, ANONYMOUS):
        raise ValueError(f'"{name}" stands for clients in general and cannot be a user name')


def check_rule(rule: Rule) -> None:
    """Raises `ValueError` with a reason for what no rule may say."""
    if rule.action not in ACTIONS:
        raise ValueError(f'"{rule.action}" is no action; one of {", ".join(ACTIONS)} is')
    if type(rule.allowed) is not bool:
        raise ValueError("allowed is true or false")
    if not _is_text(rule.topic_filter, RULE_FILTER_BYTES_MAXIMUM):
        raise ValueError(f"a topic filter here is text of 1 to {RULE_FILTER_BYTES_MAXIMUM} bytes")
    example = rule.topic_filter.replace("%c", "x").replace("%u", "x")
    if not is_valid_topic_filter(example.encode()) or example.startswith("$share/"):
        raise ValueError(f'"{rule.topic_filter}" is not a topic filter')


def check_rules(rules: Sequence[Rule]) -> None:
    """Raises `ValueError` for what cannot be the rules of one owner."""
    for rule in rules:
        check_rule(rule)
    if len(rules) > RULES_PER_OWNER_MAXIMUM:
        raise ValueError(f"more than {RULES_PER_OWNER_MAXIMUM} rules for one name")


def matches_pattern(pattern: str, name: str, client_identifier: str) -> bool:
    """True if a credential of this name and pattern may use the client identifier."""
    # The name is put in afterwards: a `*` in it stands for itself.
    parts = [part.replace("%u", name) for part in pattern.split("*")]
    return matches_parts(parts, client_identifier)


def matches_parts(parts: Sequence[str], text: str) -> bool:
    """True if the text is these parts, of which the first begins it and the last ends it, with
    anything between them."""
    first, *others = parts
    if not others:
        return text == first
    last = others.pop()
    if not text.startswith(first):
        return False
    at = len(first)
    for part in others:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return text.endswith(last) and len(text) - len(last) >= at


def format_credential(credential: Credential) -> bytes:
    """The value of a row in CREDENTIALS; its name is the key too."""
    return _format(asdict(credential))


def parse_credential(value: bytes) -> Credential:
    """The inverse of `format_credential`. What a newer version added is not looked at."""
    return Credential(**_known(Credential, json.loads(value)))


def format_rules(rules: Iterable[Rule]) -> bytes:
    """The value of a row in RULES; no rules are no row."""
    rows = [asdict(rule) for rule in rules]
    return _format(rows) if rows else b""


def parse_rules(value: bytes) -> tuple[Rule, ...]:
    """The inverse of `format_rules`."""
    return tuple(Rule(**row) for row in json.loads(value)) if value else ()


def _known(kind: type[Credential], row: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: row[name] for name in row if name in names}


def _format(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _is_text(value: object, bytes_maximum: int) -> bool:
    if not isinstance(value, str) or not value or not value.isprintable():
        return False
    # A lone surrogate is not printable, so that this cannot fail.
    return len(value.encode()) <= bytes_maximum
