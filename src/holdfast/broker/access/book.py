"""Credentials and rules as the log has them.

Owns: how many there are, the few that every login is compared with, and those looked up lately.
Never: holds all of them in memory; who connects is looked up in the view.

Invariant: what was put last is found, whether or not it is durable yet.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from holdfast.broker.access.credential import (
    Credential,
    Rule,
    format_credential,
    format_rules,
    parse_credential,
    parse_rules,
)
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table
from holdfast.core.limits import USER_NAME_BYTES_MAXIMUM

LOOKED_UP_MAXIMUM: Final = 10_000
"""Credentials, and lists of rules, that are kept at hand, some 10 MB: looking one up in the view
and reading its JSON costs as much as the rest of a CONNECT. Any change empties both."""


class Book:
    """Looks up and writes credentials and rules."""

    def __init__(self, records: ControlRecords) -> None:
        self._records = records
        self._credential = lru_cache(LOOKED_UP_MAXIMUM)(self._look_up_credential)
        self._rules = lru_cache(LOOKED_UP_MAXIMUM)(self._look_up_rules)
        view = records.refresh()
        self.credentials = view.count(Table.CREDENTIALS)
        """How many there are."""
        self.owners = view.count(Table.RULES)
        """How many have rules."""
        self.by_identifier = {
            credential.name: credential
            for credential in map(parse_credential, view.credentials_by_identifier())
        }
        """Those that a client identifier alone proves, by name."""

    def credential(self, name: str) -> Credential | None:
        """The credential of this name."""
        return self._credential(name) if len(name) <= USER_NAME_BYTES_MAXIMUM else None

    def put(self, credential: Credential, now_us: int) -> int:
        """Adds or replaces a credential; returns the log position at which that is durable."""
        self.credentials += self.credential(credential.name) is None
        if credential.proof == "identifier":
            self.by_identifier[credential.name] = credential
        else:
            self.by_identifier.pop(credential.name, None)
        return self._put(Table.CREDENTIALS, credential.name, format_credential(credential), now_us)

    def remove(self, name: str, now_us: int) -> int:
        """Removes a credential that is there, and its rules; returns as `put` does."""
        self.credentials -= 1
        self.by_identifier.pop(name, None)
        if self.rules(name):
            self.put_rules(name, (), now_us)
        return self._put(Table.CREDENTIALS, name, b"", now_us)

    def rules(self, owner: str) -> tuple[Rule, ...]:
        """The rules of a user, of `everyone` or of `anonymous`."""
        return self._rules(owner) if self.owners else ()

    def put_rules(self, owner: str, rules: tuple[Rule, ...], now_us: int) -> int:
        """Replaces an owner's rules; returns as `put` does."""
        self.owners += bool(rules) - bool(self.rules(owner))
        return self._put(Table.RULES, owner, format_rules(rules), now_us)

    def page(self, after: str, limit: int) -> Iterator[Credential]:
        """Credentials in the order of their names, those that are durable."""
        for _key, value in self._records.refresh().rows(Table.CREDENTIALS, after.encode(), limit):
            yield parse_credential(value)

    def owners_page(self, after: str, limit: int) -> Iterator[tuple[str, tuple[Rule, ...]]]:
        """Owners with their rules in the order of their names, those that are durable."""
        for key, value in self._records.refresh().rows(Table.RULES, after.encode(), limit):
            yield key.decode(), parse_rules(value)

    def _put(self, table: Table, name: str, value: bytes, now_us: int) -> int:
        position = self._records.put(table, name.encode(), value, now_us)
        self._credential.cache_clear()
        self._rules.cache_clear()
        return position

    def _look_up_credential(self, name: str) -> Credential | None:
        value = self._records.get(Table.CREDENTIALS, name.encode())
        return parse_credential(value) if value else None

    def _look_up_rules(self, owner: str) -> tuple[Rule, ...]:
        return parse_rules(self._records.get(Table.RULES, owner.encode()))
