"""Users and rules over HTTP.

Owns: the paths, and what a body may be. Never: decides what a credential or a rule may say, or
returns a password or its hash.

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

from holdfast.broker.admin import query
from holdfast.core.errors import BrokerRefusedError

PAGE_DEFAULT: Final = 100
PAGE_MAXIMUM: Final = 1_000
"""Users, or owners of rules, in one answer."""
PASSWORD_BYTES_MAXIMUM: Final = 65_535
"""As many as CONNECT can carry [MQTT-3.1.3-12]."""


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
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(users: Users, wait_durable: WaitDurable) -> list[web.RouteDef]:
    """The paths of users and rules, for an application that has checked who asks."""
    people, rules = _People(users, wait_durable), _Rules(users, wait_durable)
    table: tuple[tuple[str, str, Handler], ...] = (
        ("GET", "/v1/users", people.page),
        ("POST", "/v1/users", people.add),
        ("GET", "/v1/users/{name}", people.find),
        ("PUT", "/v1/users/{name}", people.change),
        ("DELETE", "/v1/users/{name}", people.remove),
        ("GET", "/v1/rules", rules.page),
        ("GET", "/v1/rules/{owner}", rules.of),
        ("POST", "/v1/rules/{owner}", rules.add),
        ("PUT", "/v1/rules/{owner}", rules.replace),
        ("DELETE", "/v1/rules/{owner}/{number}", rules.remove),
    )
    return [web.route(method, path, _refusing(handler)) for method, path, handler in table]


class _People:
    def __init__(self, users: Users, wait_durable: WaitDurable) -> None:
        self._users = users
        self._wait_durable = wait_durable

    async def page(self, request: web.Request) -> web.Response:
        after, limit = _page(request)
        found = self._users.page(after, limit)
        return web.json_response({"users": found, **_next(found, limit, "name")})

    async def find(self, request: web.Request) -> web.Response:
        return web.json_response(self._users.find(request.match_info["name"]))

    async def add(self, request: web.Request) -> web.Response:
        fields = await _body(request)
        password_hash = await self._hash(fields)
        await self._wait_durable(self._users.add(fields, password_hash))
        return web.json_response(self._users.find(fields["name"]), status=HTTPStatus.CREATED)

    async def change(self, request: web.Request) -> web.Response:
        name, fields = request.match_info["name"], await _body(request)
        password_hash = await self._hash(fields)
        await self._wait_durable(self._users.change(name, fields, password_hash))
        return web.json_response(self._users.find(name))

    async def remove(self, request: web.Request) -> web.Response:
        await self._wait_durable(self._users.remove(request.match_info["name"]))
        return web.json_response({})

    async def _hash(self, fields: dict[str, Any]) -> str | None:
        """The hash of a new password, which is not among the fields any more."""
        password = fields.pop("password", None)
        if password is None:
            return None
        size = len(password.encode()) if isinstance(password, str) else 0
        if not 1 <= size <= PASSWORD_BYTES_MAXIMUM:
            raise BrokerRefusedError(
                HTTPStatus.BAD_REQUEST, f"a password is text of 1 to {PASSWORD_BYTES_MAXIMUM} bytes"
            )
        hashed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def done(password_hash: str) -> None:
            if not hashed.done():
                hashed.set_result(password_hash)

        self._users.make_hash(password.encode(), done)
        return await hashed


class _Rules:
    def __init__(self, users: Users, wait_durable: WaitDurable) -> None:
        self._users = users
        self._wait_durable = wait_durable

    async def page(self, request: web.Request) -> web.Response:
        after, limit = _page(request)
        found = self._users.rules_page(after, limit)
        return web.json_response({"owners": found, **_next(found, limit, "owner")})

    async def of(self, request: web.Request) -> web.Response:
        return self._shown(request.match_info["owner"])

    async def add(self, request: web.Request) -> web.Response:
        owner = request.match_info["owner"]
        await self._wait_durable(self._users.add_rule(owner, await _body(request)))
        return self._shown(owner)

    async def replace(self, request: web.Request) -> web.Response:
        owner, body = request.match_info["owner"], await _body(request)
        await self._wait_durable(self._users.replace_rules(owner, body.get("rules")))
        return self._shown(owner)

    async def remove(self, request: web.Request) -> web.Response:
        owner, number = request.match_info["owner"], request.match_info["number"]
        if not number.isascii() or not number.isdigit() or len(number) > len("999999"):
            raise BrokerRefusedError(HTTPStatus.NOT_FOUND, f'"{number}" is no number of a rule')
        await self._wait_durable(self._users.remove_rule(owner, int(number)))
        return self._shown(owner)

    def _shown(self, owner: str) -> web.Response:
        return web.json_response({"owner": owner, "rules": self._users.rules(owner)})


def _refusing(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except BrokerRefusedError as refused:
            error = HTTPStatus(refused.status).phrase.lower().replace(" ", "_")
            document = {"error": error, "detail": str(refused)}
            return web.json_response(document, status=refused.status)

    return answer


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, "the body is not JSON") from error
    if not isinstance(body, dict):
        raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return body


def _page(request: web.Request) -> tuple[str, int]:
    unknown = sorted(set(request.query) - {"after", "limit"})
    if unknown:
        raise BrokerRefusedError(HTTPStatus.BAD_REQUEST, f"unknown parameter {unknown[0]!r}")
    limit = query.number(request.query, "limit", PAGE_DEFAULT, 1, PAGE_MAXIMUM)
    return request.query.get("after", ""), limit


def _next(found: list[dict[str, Any]], limit: int, key: str) -> dict[str, str]:
    """Where the next page goes on, if there may be one."""
    return {"next": found[-1][key]} if len(found) == limit else {}
