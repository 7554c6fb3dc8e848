"""Users and rules over HTTP: what may be asked, and what is never shown."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.admin.v1.users import RulesView, UsersView
from holdfast.broker.steps import Steps
from tests.unit.broker.access.builders import Doorway

Ask = Callable[..., Awaitable[ClientResponse]]


def asked(story: Callable[[Ask, Doorway], Awaitable[None]]) -> list[int]:
    """Runs a story against the handlers; returns the positions that were waited for."""
    waited: list[int] = []

    async def run() -> None:
        door = Doorway()

        async def wait_durable(position: int) -> None:
            waited.append(position)

        working = Working(door)
        rows = [
            *UsersView(working, wait_durable).operations(),
            *RulesView(working, wait_durable).operations(),
        ]
        app = http.application(
            rows, Protection("127.0.0.1", metrics_public=False), Steps(lambda: 0, lambda: 0)
        )
        async with TestClient(TestServer(app)) as client:
            await story(client.request, door)

    asyncio.run(run())
    return waited


class Working:
    """Users whose workers need no telling."""

    def __init__(self, door: Doorway) -> None:
        self._door = door

    def make_hash(self, password: bytes, answer: Callable[[str], None]) -> None:
        self._door.users.make_hash(password, answer)
        self._door.world.made.work()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._door.users, name)


def test_a_user_is_added_changed_and_removed() -> None:
    async def story(ask: Ask, _door: Doorway) -> None:
        body = {"name": "gate", "password": "open sesame", "allow": ["a/#"]}
        answer = await ask("POST", "/v1/users", json=body)
        assert answer.status == 201
        shown = await answer.json()
        assert shown["rules"] == 1
        assert "sesame" not in str(shown)
        assert not any("password" in key or "hash" in key for key in shown)

        answer = await ask("PUT", "/v1/users/gate", json={"administrator": True})
        assert (await answer.json())["administrator"] is True
        answer = await ask("GET", "/v1/users")
        assert [user["name"] for user in (await answer.json())["users"]] == ["gate"]
        assert (await ask("DELETE", "/v1/users/gate")).status == 200
        assert (await ask("GET", "/v1/users/gate")).status == 404

    assert len(asked(story)) == 3


def test_a_name_may_have_any_characters() -> None:
    async def story(ask: Ask, _door: Doorway) -> None:
        name = "zebra/fx 7?#%"
        body = {"name": name, "proof": "certificate"}
        assert (await ask("POST", "/v1/users", json=body)).status == 201
        path = URL("/v1/users/zebra%2Ffx%207%3F%23%25", encoded=True)
        answer = await ask("GET", path)
        assert (await answer.json())["name"] == name

    asked(story)


def test_rules_have_an_order() -> None:
    async def story(ask: Ask, _door: Doorway) -> None:
        first = {"action": "all", "topic_filter": "a", "allowed": True}
        for at, topic_filter in ((1, "b"), (1, "a"), (3, "c")):
            body = {**first, "topic_filter": topic_filter, "at": at}
            answer = await ask("POST", "/v1/rules/everyone", json=body)
            assert answer.status == 200
        rules = (await answer.json())["rules"]
        assert [(rule["number"], rule["topic_filter"]) for rule in rules] == [
            (1, "a"),
            (2, "b"),
            (3, "c"),
        ]
        await ask("DELETE", "/v1/rules/everyone/2")
        answer = await ask("GET", "/v1/rules")
        [everyone] = (await answer.json())["owners"]
        assert [rule["topic_filter"] for rule in everyone["rules"]] == ["a", "c"]
        # What is shown can be given back.
        await ask("PUT", "/v1/rules/everyone", json={"rules": everyone["rules"]})
        answer = await ask("GET", "/v1/rules/everyone")
        assert await answer.json() == everyone

    asked(story)


def test_users_come_in_pages() -> None:
    async def story(ask: Ask, door: Doorway) -> None:
        for number in range(5):
            door.add(f"user{number}", proof="certificate")
        answer = await (await ask("GET", "/v1/users?limit=3")).json()
        assert (len(answer["users"]), answer["next"]) == (3, "user2")
        answer = await (await ask("GET", "/v1/users?limit=3&after=user2")).json()
        assert [user["name"] for user in answer["users"]] == ["user3", "user4"]
        assert answer["next"] is None

    asked(story)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/users", {"name": "gate", "password": "x"}, 409),
        ("POST", "/v1/users", {"name": "new"}, 400),
        ("POST", "/v1/users", {"name": "new", "password": ""}, 400),
        ("POST", "/v1/users", {"name": "new", "password": 7}, 400),
        ("POST", "/v1/users", {"name": "new", "password": "x" * 65_536}, 400),
        ("POST", "/v1/users", {"name": "everyone", "password": "x"}, 400),
        ("POST", "/v1/users", {"name": ["new"], "password": "x"}, 400),
        ("POST", "/v1/users", {"password": "x"}, 400),
        ("POST", "/v1/users", {"name": "new", "password": "x", "allow": "a"}, 400),
        ("POST", "/v1/users", {"name": "new", "password": "x", "allow": ["a/#/b"]}, 400),
        ("POST", "/v1/users", {"name": "new", "password": "x", "colour": "blue"}, 400),
        ("POST", "/v1/users", {"name": "new", "password": "x", "password_hash": "y"}, 400),
        ("POST", "/v1/users", {"name": "new", "proof": "identifier"}, 400),
        ("POST", "/v1/users", ["new"], 400),
        ("PUT", "/v1/users/nobody", {"enabled": False}, 404),
        ("PUT", "/v1/users/gate", {"enabled": "no"}, 400),
        ("PUT", "/v1/users/gate", {"name": "other"}, 400),
        ("PUT", "/v1/users/gate", {"messages_per_second": -1}, 400),
        ("DELETE", "/v1/users/nobody", None, 404),
        ("GET", "/v1/rules/nobody", None, 404),
        ("POST", "/v1/rules/gate", {"action": "all"}, 400),
        ("POST", "/v1/rules/gate", {"action": "all", "topic_filter": "a", "allowed": "yes"}, 400),
        ("PUT", "/v1/rules/gate", {"rules": "all"}, 400),
        ("DELETE", "/v1/rules/gate/1", None, 404),
        ("DELETE", "/v1/rules/gate/x", None, 404),
        ("DELETE", "/v1/rules/gate/-1", None, 404),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    method: str, path: str, body: object, status: int
) -> None:
    async def story(ask: Ask, door: Doorway) -> None:
        door.add("gate", "open sesame")
        before = list(door.log.records)
        answer = await ask(method, path, json=body)
        document = await answer.json()
        assert (answer.status, set(document)) == (status, {"error", "detail"})
        assert document["detail"]
        assert door.log.records == before

    assert asked(story) == []


def test_a_body_that_is_no_json_is_refused() -> None:
    async def story(ask: Ask, _door: Doorway) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await ask("POST", "/v1/users", data=b"\xff{", headers=headers)
        assert answer.status == 400

    asked(story)
