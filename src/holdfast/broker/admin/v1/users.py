"""Users and rules: list, add, change, remove.

Owns: what a body may have. Never: decides what a credential or a rule may say, or returns a
password or its hash.

Invariants:
1. A change is answered when it is durable; it is in force before.
2. A refusal says why, with the status that fits.

Flow: HTTP -> here -> access.users, and back when the log is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from aiohttp import web

from holdfast.broker.admin.http.operation import (
    AFTER,
    LIMIT,
    Answered,
    Asked,
    Operation,
    ProblemError,
    Schema,
    bad_request,
    listing,
    page_of,
    row_of,
)

PASSWORD_BYTES_MAXIMUM: Final = 65_535
"""As many as CONNECT can carry [MQTT-3.1.3-12]."""
FILTERS_MAXIMUM: Final = 1_000
"""More than an owner may have rules; `access` says how many that are."""

RATE: Final[Schema] = {"type": ["integer", "null"]}
SETTABLE: Final[Schema] = {
    "password": {"type": ["string", "null"], "description": "Stored as a hash; never shown."},
    "proof": {"type": "string", "description": "password, certificate or identifier."},
    "client_identifiers": {
        "type": ["string", "null"],
        "description": "Those it may use: * is anything, %u its name; null allows all.",
    },
    "administrator": {"type": "boolean", "description": "It may use all of this interface."},
    "reader": {"type": "boolean", "description": "It may read the log, at /v1/log."},
    "enabled": {"type": "boolean"},
    "messages_per_second": RATE,
    "bytes_per_second": RATE,
    "client_type": {"type": "string", "description": "DEVICE or APPLICATION."},
}
NAME: Final[Schema] = {"type": "string", "description": "The user name, or a common name."}
ALLOW: Final[Schema] = {
    "type": "array",
    "items": {"type": "string"},
    "maxItems": FILTERS_MAXIMUM,
    "description": "Topic filters with which it may do everything.",
}
NEW_USER: Final[Schema] = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": NAME, "allow": ALLOW, **SETTABLE},
    "additionalProperties": False,
}
CHANGED_USER: Final[Schema] = {
    "type": "object",
    "properties": SETTABLE,
    "additionalProperties": False,
}
USER: Final = row_of(
    name="string",
    proof="string",
    client_identifiers=("string", "null"),
    administrator="boolean",
    reader="boolean",
    enabled="boolean",
    messages_per_second=("integer", "null"),
    bytes_per_second=("integer", "null"),
    client_type="string",
    rules="integer",
)
_RULE: Final[Schema] = {
    "action": {"type": "string", "description": "publish, subscribe, receive or all."},
    "topic_filter": {
        "type": "string",
        "description": "%c stands for the client identifier, %u for the user name.",
    },
    "allowed": {"type": "boolean"},
}
NEW_RULE: Final[Schema] = {
    "type": "object",
    "required": list(_RULE),
    "properties": {
        **_RULE,
        "at": {"type": "integer", "description": "Its number; without it, it is the last."},
    },
    "additionalProperties": False,
}
RULE: Final[Schema] = {
    "type": "object",
    "required": list(_RULE),
    # As they are shown, numbers included, they can be given back.
    "properties": {"number": {"type": "integer"}, **_RULE},
    "additionalProperties": False,
}
RULES: Final[Schema] = {"type": "array", "items": RULE}
NEW_RULES: Final[Schema] = {
    "type": "object",
    "required": ["rules"],
    "properties": {"rules": RULES},
    "additionalProperties": False,
}
OWNER: Final[Schema] = {
    "type": "object",
    "required": ["owner", "rules"],
    "properties": {"owner": {"type": "string"}, "rules": RULES},
}
NO_USER: Final = Answered("There is no such user.")
NO_RULE: Final = Answered("There is no such user, or it has no rule of this number.")


class Users(Protocol):
    """What `access.users.Users` offers."""

    def make_hash(self, password: bytes, answer: Callable[[str], None]) -> None: ...  # noqa: D102
    def page(self, after: str, limit: int) -> list[dict[str, Any]]: ...  # noqa: D102
    def find(self, name: str) -> dict[str, Any]: ...  # noqa: D102
    def add(self, fields: Mapping[str, Any], password_hash: str | None) -> int: ...  # noqa: D102
    def change(  # noqa: D102
        self, name: str, fields: Mapping[str, Any], password_hash: str | None
    ) -> int: ...
    def remove(self, name: str) -> int: ...  # noqa: D102
    def rules(self, owner: str) -> list[dict[str, Any]]: ...  # noqa: D102
    def rules_page(self, after: str, limit: int) -> list[dict[str, Any]]: ...  # noqa: D102
    def add_rule(self, owner: str, fields: Mapping[str, Any]) -> int: ...  # noqa: D102
    def remove_rule(self, owner: str, number: int) -> int: ...  # noqa: D102
    def replace_rules(self, owner: str, rows: Any) -> int: ...  # noqa: D102


WaitDurable = Callable[[int], Awaitable[None]]


class UsersView:
    """What can be asked about users, and done to them."""

    def __init__(self, users: Users, wait_durable: WaitDurable) -> None:
        self._users = users
        self._wait_durable = wait_durable

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        every, one = "/v1/users", "/v1/users/{name}"
        return [
            listing(
                *("listUsers", "users", USER, self.page),
                summary="Users in the order of their names.",
            ),
            Operation(
                method="POST",
                path=every,
                name="addUser",
                summary="Add a user; it may connect at once.",
                run=self.add,
                body=NEW_USER,
                answers={
                    201: Answered("The new user.", USER),
                    409: Answered("There is a user of this name already."),
                },
            ),
            Operation(
                method="GET",
                path=one,
                name="showUser",
                summary="One user.",
                run=self.find,
                answers={200: Answered("The user.", USER), 404: NO_USER},
            ),
            Operation(
                method="PUT",
                path=one,
                name="changeUser",
                summary="Change what the body says; who would have to log in anew is disconnected.",
                run=self.change,
                body=CHANGED_USER,
                answers={200: Answered("The user as it is now.", USER), 404: NO_USER},
            ),
            Operation(
                method="DELETE",
                path=one,
                name="removeUser",
                summary="Remove a user with its rules, and end its connections.",
                run=self.remove,
                answers={200: Answered("It is gone.", {"type": "object"}), 404: NO_USER},
            ),
        ]

    async def page(self, asked: Asked) -> dict[str, Any]:
        """A page of users."""
        found = self._users.page(asked.query["after"], asked.query["limit"])
        return {"users": found, "next": _next(found, asked, "name")}

    async def find(self, asked: Asked) -> dict[str, Any]:
        """One user."""
        return self._users.find(asked.path["name"])

    async def add(self, asked: Asked) -> web.Response:
        """Adds a user."""
        fields, password_hash = await self._without_password(asked.body)
        await self._wait_durable(self._users.add(fields, password_hash))
        found = self._users.find(fields["name"])
        return web.json_response(found, status=HTTPStatus.CREATED)

    async def change(self, asked: Asked) -> dict[str, Any]:
        """Changes a user."""
        name = asked.path["name"]
        fields, password_hash = await self._without_password(asked.body)
        await self._wait_durable(self._users.change(name, fields, password_hash))
        return self._users.find(name)

    async def remove(self, asked: Asked) -> dict[str, Any]:
        """Removes a user."""
        await self._wait_durable(self._users.remove(asked.path["name"]))
        return {}

    async def _without_password(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The fields without a new password, and its hash."""
        fields = dict(body)
        password = fields.pop("password", None)
        if password is None:
            return fields, None
        try:
            secret = password.encode()
        except UnicodeEncodeError:
            secret = b""
        if not 1 <= len(secret) <= PASSWORD_BYTES_MAXIMUM:
            raise bad_request(f"a password is text of 1 to {PASSWORD_BYTES_MAXIMUM} bytes")
        hashed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def done(password_hash: str) -> None:
            if not hashed.done():
                hashed.set_result(password_hash)

        self._users.make_hash(secret, done)
        return fields, await hashed


class RulesView:
    """What can be asked about rules, and done to them."""

    def __init__(self, users: Users, wait_durable: WaitDurable) -> None:
        self._users = users
        self._wait_durable = wait_durable

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one = "/v1/rules/{owner}"

        def of(
            method: str, name: str, summary: str, run: Any, *, path: str = one, **more: Any
        ) -> Operation:
            missing = NO_USER if path == one else NO_RULE
            answers = {200: Answered("Its rules, in their order.", OWNER), 404: missing}
            return Operation(
                method=method,
                path=path,
                name=name,
                summary=summary,
                run=run,
                answers=answers,
                **more,
            )

        return [
            Operation(
                method="GET",
                path="/v1/rules",
                name="listRules",
                summary="Who has rules, in the order of their names, with the rules.",
                run=self.page,
                parameters=(LIMIT, AFTER),
                answers={200: Answered("A page of owners.", page_of("owners", OWNER))},
            ),
            of("GET", "showRules", "Rules of a user, of everyone or of anonymous.", self.find),
            of("POST", "addRule", "Add a rule: last, or as number `at`.", self.add, body=NEW_RULE),
            of("PUT", "replaceRules", "Replace all its rules.", self.replace, body=NEW_RULES),
            of("DELETE", "removeRule", "Remove a rule.", self.remove, path=f"{one}/{{number}}"),
        ]

    async def page(self, asked: Asked) -> dict[str, Any]:
        """A page of owners."""
        found = self._users.rules_page(asked.query["after"], asked.query["limit"])
        return {"owners": found, "next": _next(found, asked, "owner")}

    async def find(self, asked: Asked) -> dict[str, Any]:
        """The rules of one."""
        owner = asked.path["owner"]
        return {"owner": owner, "rules": self._users.rules(owner)}

    async def add(self, asked: Asked) -> dict[str, Any]:
        """Adds a rule."""
        await self._wait_durable(self._users.add_rule(asked.path["owner"], asked.body))
        return await self.find(asked)

    async def replace(self, asked: Asked) -> dict[str, Any]:
        """Replaces all rules of one."""
        await self._wait_durable(
            self._users.replace_rules(asked.path["owner"], asked.body["rules"])
        )
        return await self.find(asked)

    async def remove(self, asked: Asked) -> dict[str, Any]:
        """Removes a rule."""
        number = asked.path["number"]
        if not number.isascii() or not number.isdigit() or len(number) > len("999999"):
            raise ProblemError(404, "not_found", f'"{number}" is no number of a rule')
        await self._wait_durable(self._users.remove_rule(asked.path["owner"], int(number)))
        return await self.find(asked)


def _next(found: list[dict[str, Any]], asked: Asked, key: str) -> str | None:
    """Where the next page goes on, if there may be one."""
    last: str | None = found[-1][key] if len(found) == asked.query["limit"] else None
    return last
