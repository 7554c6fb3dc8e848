"""Users as commands meet them: those of a running broker, or of a data directory at rest.

Owns: which of the two it is. Never: knows what a user is.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote

from holdfast.client.http import HttpClient
from holdfast.core.config import Config
from holdfast.core.errors import BrokerAbsentError


class Users(Protocol):
    """What can be done with users, in either case."""

    def page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Users in the order of their names."""

    def find(self, name: str) -> dict[str, Any]:
        """One user."""

    def add(self, fields: Mapping[str, Any], password: str | None) -> object:
        """Adds a user."""

    def change(self, name: str, fields: Mapping[str, Any], password: str | None) -> object:
        """Changes a user."""

    def remove(self, name: str) -> object:
        """Removes a user with its rules."""

    def rules(self, owner: str) -> list[dict[str, Any]]:
        """The rules of one."""

    def rules_page(self, after: str, limit: int) -> list[dict[str, Any]]:
        """The rules of all."""

    def add_rule(self, owner: str, fields: Mapping[str, Any]) -> object:
        """Adds a rule."""

    def remove_rule(self, owner: str, number: int) -> object:
        """Removes a rule."""


@contextmanager
def users_of(config: Config) -> Iterator[Users]:
    """The users of a data directory, whether or not a broker runs on it."""
    broker = HttpClient.on(config.data_dir)
    try:
        broker.get("/v1/users", {"limit": 1})
    except BrokerAbsentError:
        # Imported here, since a running broker does all this by itself.
        from holdfast.broker.access.at_rest import users_at_rest

        with users_at_rest(config) as users:
            yield users
    else:
        yield _OfRunning(broker)


class _OfRunning:
    def __init__(self, broker: HttpClient) -> None:
        self._broker = broker

    def page(self, after: str, limit: int) -> list[dict[str, Any]]:
        answer = self._broker.get("/v1/users", {"after": after, "limit": limit})
        found: list[dict[str, Any]] = answer["users"]
        return found

    def find(self, name: str) -> dict[str, Any]:
        return self._broker.get(_user(name))

    def add(self, fields: Mapping[str, Any], password: str | None) -> None:
        self._broker.post("/v1/users", {**fields, "password": password})

    def change(self, name: str, fields: Mapping[str, Any], password: str | None) -> None:
        self._broker.put(_user(name), {**fields, "password": password})

    def remove(self, name: str) -> None:
        self._broker.delete(_user(name))

    def rules(self, owner: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._broker.get(_rules(owner))["rules"]
        return found

    def rules_page(self, after: str, limit: int) -> list[dict[str, Any]]:
        answer = self._broker.get("/v1/rules", {"after": after, "limit": limit})
        found: list[dict[str, Any]] = answer["owners"]
        return found

    def add_rule(self, owner: str, fields: Mapping[str, Any]) -> None:
        self._broker.post(_rules(owner), fields)

    def remove_rule(self, owner: str, number: int) -> None:
        self._broker.delete(f"{_rules(owner)}/{number}")


def _user(name: str) -> str:
    return f"/v1/users/{quote(name, safe='')}"


def _rules(owner: str) -> str:
    return f"/v1/rules/{quote(owner, safe='')}"
