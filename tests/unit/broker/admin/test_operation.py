"""Bodies and parameters are held to their schemas; requests to who may ask."""

import asyncio
from base64 import b64encode

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from holdfast.broker.access.access import Identity
from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Operation,
    ProblemError,
    check,
)
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.steps import Steps

SCHEMA = {
    "type": "object",
    "required": ["a"],
    "additionalProperties": False,
    "properties": {
        "a": {"type": "integer", "minimum": 1, "maximum": 9},
        "b": {"type": ["string", "null"], "maxLength": 3},
        "c": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}},
        "d": {"enum": ["x", "y"]},
    },
}


@pytest.mark.parametrize("value", [{"a": 1}, {"a": 9, "b": None, "c": [True], "d": "x"}])
def test_what_fits_passes(value: object) -> None:
    check(SCHEMA, value, "it")


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"a": 0},
        {"a": 10},
        {"a": True},
        {"a": "1"},
        {"a": 1.5},
        {"a": 1, "b": "long"},
        {"a": 1, "b": 1},
        {"a": 1, "c": [True] * 3},
        {"a": 1, "c": [1]},
        {"a": 1, "d": "z"},
        {"a": 1, "e": 1},
    ],
)
def test_what_does_not_fit_is_refused(value: object) -> None:
    with pytest.raises(ProblemError) as refused:
        check(SCHEMA, value, "it")
    assert refused.value.status == 400


class AdministratorAndReader:
    def __init__(self, required: bool) -> None:
        self.required = required

    async def identify(self, user_name: str, password: str, peer: str) -> Identity | None:
        assert peer == "127.0.0.1"
        roles = {"ada": {"administrator": True}, "spark": {"reader": True}, "gate": {}}
        return Identity(user_name=user_name, **roles[user_name]) if password == "a:b" else None


async def answer(_asked: Asked) -> web.StreamResponse | dict[str, object]:
    return {}


async def fail(_asked: Asked) -> web.StreamResponse | dict[str, object]:
    raise RuntimeError("a fault of ours")


def operation(
    path: str, *, audience: Audience = Audience.ADMINISTRATORS, run: object = answer
) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=path,
        summary=path,
        run=run,  # type: ignore[arg-type]
        answers={200: Answered("Done.", {"type": "object"})},
        audience=audience,
    )


def statuses(protection: Protection, *asked: tuple[str, dict[str, str]]) -> list[int]:
    async def run() -> list[int]:
        operations = [
            operation("/v1/own"),
            operation("/metrics"),
            operation("/v1/log", audience=Audience.READERS),
            operation("/fail", audience=Audience.EVERYBODY, run=fail),
            operation("/open", audience=Audience.EVERYBODY),
        ]
        app = http.application(operations, protection, Steps(lambda: 0, lambda: 0))
        async with TestClient(TestServer(app, host="127.0.0.1")) as client:
            found = []
            for path, headers in asked:
                async with client.get(path, headers=headers) as response:
                    assert response.content_type == "application/json"
                    assert isinstance(await response.json(), dict)
                    found.append(response.status)
            return found

    return asyncio.run(run())


def basic(word: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(word.encode()).decode()}"}


def test_without_credentials_loopback_is_open_and_the_world_is_not() -> None:
    here = Protection("127.0.0.1", metrics_public=False)
    assert statuses(here, ("/v1/own", {}), ("/metrics", {})) == [200, 200]
    world = Protection("0.0.0.0", metrics_public=False)
    assert statuses(world, ("/v1/own", {}), ("/metrics", {}), ("/open", {})) == [403, 403, 200]
    shown = Protection("0.0.0.0", metrics_public=True)
    assert statuses(shown, ("/v1/own", {}), ("/metrics", {})) == [403, 200]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_credentials_an_administrator_is_answered_and_nobody_else(host: str) -> None:
    protection = Protection(
        host, metrics_public=False, credentials=AdministratorAndReader(required=True)
    )
    assert statuses(
        protection,
        ("/v1/own", basic("ada:a:b")),
        ("/v1/own", basic("ada:wrong")),
        ("/v1/own", basic("ada")),
        ("/v1/own", {"Authorization": "Basic ???"}),
        ("/v1/own", {"Authorization": "Bearer x"}),
        ("/v1/own", {}),
        ("/metrics", {}),
        ("/open", {}),
        ("/v1/nothing", {}),
    ) == [200, 401, 401, 401, 401, 401, 401, 200, 401]


def test_an_error_of_ours_is_said_and_ends_nothing() -> None:
    protection = Protection("127.0.0.1", metrics_public=False)
    assert statuses(protection, ("/fail", {}), ("/open", {})) == [500, 200]


def test_a_reader_reads_the_log_and_nothing_else() -> None:
    protection = Protection(
        "127.0.0.1", metrics_public=False, credentials=AdministratorAndReader(required=True)
    )
    assert statuses(
        protection,
        ("/v1/log", basic("spark:a:b")),
        ("/v1/log", basic("ada:a:b")),
        ("/v1/log", basic("spark:wrong")),
        ("/v1/log", basic("gate:a:b")),
        ("/v1/log", {}),
        ("/v1/own", basic("spark:a:b")),
        ("/metrics", basic("spark:a:b")),
    ) == [200, 200, 401, 401, 401, 401, 401]


def test_metrics_can_be_opened_and_closed_while_it_runs() -> None:
    protection = Protection("0.0.0.0", metrics_public=True)
    protection.metrics_public = False
    assert statuses(protection, ("/metrics", {})) == [403]
