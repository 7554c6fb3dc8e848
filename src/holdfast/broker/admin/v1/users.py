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
from typing import Annotated, Any, Final, Protocol

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from holdfast.broker.admin.http.operation import (
    AFTER,
    LIMIT,
    Answered,
    Asked,
    Next,
    Nothing,
    Operation,
    ProblemError,
    bad_request,
    listing,
    written,
)

PASSWORD_BYTES_MAXIMUM: Final = 65_535
"""As many as CONNECT can carry [MQTT-3.1.3-12]."""
FILTERS_MAXIMUM: Final = 1_000
"""More than an owner may have rules; `access` says how many that are."""

Name = Annotated[str, Meta(description="The user name, or a common name.")]
TopicFilters = Annotated[
    list[str],
    Meta(max_length=FILTERS_MAXIMUM, description="Topic filters with which it may do everything."),
]
Action = Annotated[str, Meta(description="publish, subscribe, receive or all.")]
TopicFilter = Annotated[
    str, Meta(description="%c stands for the client identifier, %u for the user name.")
]


class ChangedUser(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is changed of a user: what is given."""

    password: (
        Annotated[str | None, Meta(description="Stored as a hash; never shown.")] | UnsetType
    ) = UNSET
    proof: Annotated[str, Meta(description="password, certificate or identifier.")] | UnsetType = (
        UNSET
    )
    client_identifiers: (
        Annotated[
            str | None,
            Meta(description="Those it may use: * is anything, %u its name; null allows all."),
        ]
        | UnsetType
    ) = UNSET
    administrator: (
        Annotated[bool, Meta(description="It may use all of this interface.")] | UnsetType
    ) = UNSET
    reader: Annotated[bool, Meta(description="It may read the log, at /v1/log.")] | UnsetType = (
        UNSET
    )
    enabled: bool | UnsetType = UNSET
    messages_per_second: int | UnsetType | None = UNSET
    bytes_per_second: int | UnsetType | None = UNSET
    client_type: Annotated[str, Meta(description="DEVICE or APPLICATION.")] | UnsetType = UNSET


class NewUser(ChangedUser, forbid_unknown_fields=True, kw_only=True):
    """A user to be added."""

    name: Name
    allow: TopicFilters | UnsetType = UNSET


class User(Struct, kw_only=True):
    """A user as it is shown."""

    name: str
    proof: str
    client_identifiers: str | None
    administrator: bool
    reader: bool
    enabled: bool
    messages_per_second: int | None
    bytes_per_second: int | None
    client_type: str
    rules: int


class UserPage(Struct, kw_only=True):
    """A page of users."""

    users: list[User]
    next: Next


class Rule(Struct, forbid_unknown_fields=True, kw_only=True):
    """A rule; as it is shown, with its number, it can be given back."""

    number: int | UnsetType = UNSET
    action: Action
    topic_filter: TopicFilter
    allowed: bool


class NewRule(Struct, forbid_unknown_fields=True, kw_only=True):
    """A rule to be added."""

    action: Action
    topic_filter: TopicFilter
    allowed: bool
    at: Annotated[int, Meta(description="Its number; without it, it is the last.")] | UnsetType = (
        UNSET
    )


class NewRules(Struct, forbid_unknown_fields=True, kw_only=True):
    """Rules in place of all that there were."""

    rules: list[Rule]


class Owner(Struct, kw_only=True):
    """A user, everyone or anonymous, with the rules in their order."""

    owner: str
    rules: list[Rule]


class OwnerPage(Struct, kw_only=True):
    """A page of those who have rules."""

    owners: list[Owner]
    next: Next


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
                "users",
                UserPage,
                self.page,
                summary="Users in the order of their names.",
            ),
            Operation(
                method="POST",
                path=every,
                name="addUser",
                summary="Add a user; it may connect at once.",
                run=self.add,
                body=NewUser,
                answers={
                    201: Answered("The new user.", User),
                    409: Answered("There is a user of this name already."),
                },
            ),
            Operation(
                method="GET",
                path=one,
                name="showUser",
                summary="One user.",
                run=self.find,
                answers={200: Answered("The user.", User), 404: NO_USER},
            ),
            Operation(
                method="PUT",
                path=one,
                name="changeUser",
                summary="Change what the body says; who would have to log in anew is disconnected.",
                run=self.change,
                body=ChangedUser,
                answers={200: Answered("The user as it is now.", User), 404: NO_USER},
            ),
            Operation(
                method="DELETE",
                path=one,
                name="removeUser",
                summary="Remove a user with its rules, and end its connections.",
                run=self.remove,
                answers={200: Answered("It is gone.", Nothing), 404: NO_USER},
            ),
        ]

    async def page(self, asked: Asked) -> UserPage:
        """A page of users."""
        found = self._users.page(asked.query["after"], asked.query["limit"])
        return UserPage(users=[User(**row) for row in found], next=_next(found, asked, "name"))

    async def find(self, asked: Asked) -> User:
        """One user."""
        return User(**self._users.find(asked.path["name"]))

    async def add(self, asked: Asked) -> web.Response:
        """Adds a user."""
        fields, password_hash = await self._without_password(asked.body)
        await self._wait_durable(self._users.add(fields, password_hash))
        return written(User(**self._users.find(fields["name"])), HTTPStatus.CREATED)

    async def change(self, asked: Asked) -> User:
        """Changes a user."""
        name = asked.path["name"]
        fields, password_hash = await self._without_password(asked.body)
        await self._wait_durable(self._users.change(name, fields, password_hash))
        return User(**self._users.find(name))

    async def remove(self, asked: Asked) -> Nothing:
        """Removes a user."""
        await self._wait_durable(self._users.remove(asked.path["name"]))
        return Nothing()

    async def _without_password(self, body: ChangedUser) -> tuple[dict[str, Any], str | None]:
        """The fields that are given, without a new password, and its hash."""
        fields: dict[str, Any] = to_builtins(body)
        password = fields.pop("password", None)
        if password is None:
            return fields, None
        secret = password.encode()
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
            answers = {200: Answered("Its rules, in their order.", Owner), 404: missing}
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
                answers={200: Answered("A page of owners.", OwnerPage)},
            ),
            of("GET", "showRules", "Rules of a user, of everyone or of anonymous.", self.find),
            of("POST", "addRule", "Add a rule: last, or as number `at`.", self.add, body=NewRule),
            of("PUT", "replaceRules", "Replace all its rules.", self.replace, body=NewRules),
            of("DELETE", "removeRule", "Remove a rule.", self.remove, path=f"{one}/{{number}}"),
        ]

    async def page(self, asked: Asked) -> OwnerPage:
        """A page of owners."""
        found = self._users.rules_page(asked.query["after"], asked.query["limit"])
        owners = [_owner(row["owner"], row["rules"]) for row in found]
        return OwnerPage(owners=owners, next=_next(found, asked, "owner"))

    async def find(self, asked: Asked) -> Owner:
        """The rules of one."""
        owner = asked.path["owner"]
        return _owner(owner, self._users.rules(owner))

    async def add(self, asked: Asked) -> Owner:
        """Adds a rule."""
        fields = to_builtins(asked.body)
        await self._wait_durable(self._users.add_rule(asked.path["owner"], fields))
        return await self.find(asked)

    async def replace(self, asked: Asked) -> Owner:
        """Replaces all rules of one."""
        rules = to_builtins(asked.body)["rules"]
        await self._wait_durable(self._users.replace_rules(asked.path["owner"], rules))
        return await self.find(asked)

    async def remove(self, asked: Asked) -> Owner:
        """Removes a rule."""
        number = asked.path["number"]
        if not number.isascii() or not number.isdigit() or len(number) > len("999999"):
            raise ProblemError(404, "not_found", f'"{number}" is no number of a rule')
        await self._wait_durable(self._users.remove_rule(asked.path["owner"], int(number)))
        return await self.find(asked)


def _owner(owner: str, rules: list[dict[str, Any]]) -> Owner:
    return Owner(owner=owner, rules=[Rule(**rule) for rule in rules])


def _next(found: list[dict[str, Any]], asked: Asked, key: str) -> str | None:
    """Where the next page goes on, if there may be one."""
    last: str | None = found[-1][key] if len(found) == asked.query["limit"] else None
    return last
