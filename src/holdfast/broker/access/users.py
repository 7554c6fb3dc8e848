"""Credentials and rules as operators change them: from fields of JSON to values, and back.

Owns: what may be asked for, and what is shown; a password or its hash never is. Never: knows
whether HTTP asks, or the command line while no broker runs.

Whatever is refused is a `BrokerRefusedError` that says why; nothing has changed then.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any, Final

from holdfast.broker.access.access import Access
from holdfast.broker.access.credential import (
    ANONYMOUS,
    EVERYONE,
    Credential,
    Rule,
    check_credential,
    check_name,
    check_rules,
)
from holdfast.core.errors import BrokerRefusedError
from holdfast.core.limits import CREDENTIALS_BY_IDENTIFIER_MAXIMUM

SETTABLE: Final = frozenset(
    {
        "proof",
        "client_identifiers",
        "administrator",
        "reader",
        "enabled",
        "messages_per_second",
        "bytes_per_second",
        "client_type",
    }
)
OWNERS_IN_GENERAL: Final = (EVERYONE, ANONYMOUS)


class Users:
    """Changes credentials and rules."""

    def __init__(self, access: Access, now_us: Callable[[], int]) -> None:
        self._access = access
        self._book = access.book
        self._now_us = now_us

    def make_hash(self, password: bytes, answer: Callable[[str], None]) -> None:
        """Calls `answer` with the hash of a new password, later."""
        self._access.passwords.make_hash(password, answer)

    def page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Users in the order of their names."""
        return [self._shown(credential) for credential in self._book.page(after, limit)]

    def find(self, name: str) -> dict[str, Any]:
        """One user."""
        return self._shown(self._known(name))

    def add(self, fields: Mapping[str, Any], password_hash: str | None) -> int:
        """Adds a user; returns the log position at which that is durable. `allow` among the fields
        is a list of topic filters with which it may do everything."""
        settings = dict(fields)
        name, allow = settings.pop("name", None), settings.pop("allow", [])
        settings.setdefault("proof", "password")
        _check(lambda: check_name(name))
        if self._book.credential(name) is not None:
            raise BrokerRefusedError(HTTPStatus.CONFLICT, f'there is a user "{name}" already')
        if not isinstance(allow, list):
            raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, "allow is a list of topic filters")
        rules = tuple(Rule(action="all", topic_filter=item, allowed=True) for item in allow)
        _check(lambda: check_rules(rules))
        position = self._put(Credential(name=name, proof="password"), settings, password_hash)
        return self._access.put_rules(name, rules, self._now_us()) if rules else position

    def change(self, name: str, fields: Mapping[str, Any], password_hash: str | None) -> int:
        """Changes what the fields say; returns as `add` does."""
        return self._put(self._known(name), fields, password_hash)

    def remove(self, name: str) -> int:
        """Removes a user with its rules; returns as `add` does."""
        self._known(name)
        return self._access.remove(name, self._now_us())

    def rules(self, owner: str) -> list[dict[str, Any]]:
        """The rules of a user, of `everyone` or of `anonymous`, numbered in their order."""
        self._check_owner(owner)
        return _numbered(self._book.rules(owner))

    def rules_page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Those who have rules, in the order of their names, with their rules."""
        return [
            {"owner": owner, "rules": _numbered(rules)}
            for owner, rules in self._book.owners_page(after, limit)
        ]

    def add_rule(self, owner: str, fields: Mapping[str, Any]) -> int:
        """Adds a rule: after the others, or as number `at`; returns as `add` does."""
        self._check_owner(owner)
        rules = list(self._book.rules(owner))
        settings = dict(fields)
        at = settings.pop("at", len(rules) + 1)
        if type(at) is not int or not 1 <= at <= len(rules) + 1:
            reason = f"a rule can be added as number 1 to {len(rules) + 1}"
            raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, reason)
        rules.insert(at - 1, _rule(settings))
        return self._put_rules(owner, rules)

    def remove_rule(self, owner: str, number: int) -> int:
        """Removes the rule of this number; returns as `add` does."""
        self._check_owner(owner)
        rules = list(self._book.rules(owner))
        if not 1 <= number <= len(rules):
            reason = f'"{owner}" has no rule number {number}'
            raise BrokerRefusedError(HTTPStatus.NOT_FOUND, reason)
        del rules[number - 1]
        return self._put_rules(owner, rules)

    def replace_rules(self, owner: str, rows: Any) -> int:
        """Replaces all rules; returns as `add` does."""
        self._check_owner(owner)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, "rules is a list of rules")
        return self._put_rules(owner, [_rule(row) for row in rows])

    def _put(self, before: Credential, fields: Mapping[str, Any], password_hash: str | None) -> int:
        unknown = sorted(fields.keys() - SETTABLE)
        if unknown:
            reason = f'"{unknown[0]}" is no field of a user'
            raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, reason)
        credential = replace(before, **fields)
        if password_hash is not None:
            credential = replace(credential, password_hash=password_hash)
        elif credential.proof != "password":
            credential = replace(credential, password_hash=None)
        _check(lambda: check_credential(credential))
        many = len(self._book.by_identifier) >= CREDENTIALS_BY_IDENTIFIER_MAXIMUM
        if credential.proof == "identifier" and before.proof != "identifier" and many:
            raise BrokerRefusedError(
                HTTPStatus.BAD_REQUEST,
                f"there are {CREDENTIALS_BY_IDENTIFIER_MAXIMUM} users already that their client"
                " identifier alone proves",
            )
        return self._access.put(credential, self._now_us())

    def _put_rules(self, owner: str, rules: list[Rule]) -> int:
        _check(lambda: check_rules(rules))
        return self._access.put_rules(owner, tuple(rules), self._now_us())

    def _known(self, name: str) -> Credential:
        credential = self._book.credential(name)
        if credential is None:
            raise BrokerRefusedError(HTTPStatus.NOT_FOUND, f'there is no user "{name}"')
        return credential

    def _check_owner(self, owner: str) -> None:
        if owner not in OWNERS_IN_GENERAL:
            self._known(owner)

    def _shown(self, credential: Credential) -> dict[str, Any]:
        fields = asdict(credential)
        del fields["password_hash"]
        return {**fields, "rules": len(self._book.rules(credential.name))}


def _rule(fields: Mapping[str, Any]) -> Rule:
    try:
        return Rule(**{name: fields[name] for name in fields if name != "number"})
    except TypeError as error:
        raise BrokerRefusedError(
            HTTPStatus.BAD_REQUEST, "a rule has action, topic_filter and allowed"
        ) from error


def _numbered(rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    return [{"number": number, **asdict(rule)} for number, rule in enumerate(rules, start=1)]


def _check(check: Callable[[], None]) -> None:
    try:
        check()
    except ValueError as error:
        raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
