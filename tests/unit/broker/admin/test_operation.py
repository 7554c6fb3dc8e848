"""Bodies are held to their types; requests to who may ask."""

import asyncio
from base64 import b64encode
from typing import Annotated, Literal

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from jsonschema import Draft202012Validator
from msgspec import UNSET, Meta, Struct, UnsetType, json, to_builtins

from holdfast.broker.access.access import Identity
from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.body import BodyError, parse_body
from holdfast.broker.admin.http.openapi import document
from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Nothing,
    Operation,
    ProblemError,
)
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.steps import Steps


class Inner(Struct, forbid_unknown_fields=True):
    qos: Annotated[int, Meta(ge=0, le=2)]
    user_property: list[tuple[str, str]] = []


class Body(Struct, forbid_unknown_fields=True):
    a: Annotated[int, Meta(ge=1, le=9)]
    b: Annotated[str, Meta(max_length=3)] | UnsetType | None = UNSET
    c: Annotated[list[bool], Meta(min_length=1, max_length=2)] | UnsetType = UNSET
    d: Annotated[Literal["x", "y"], Meta(description="which way")] | UnsetType = UNSET
    inner: list[Inner] | UnsetType = UNSET
    frozen: Annotated[tuple[Inner, ...], Meta(max_length=2)] | UnsetType = UNSET


@pytest.mark.parametrize("value", [{"a": 1}, {"a": 9, "b": None, "c": [True], "d": "x"}])
def test_what_fits_passes(value: dict[str, object]) -> None:
    assert to_builtins(parse_body(json.encode(value), Body)) == value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "the body must be of type object"),
        ({}, "the body has no 'a'"),
        ({"a": 0}, "a must be from 1 to 9, not 0"),
        ({"a": 10}, "a must be from 1 to 9, not 10"),
        ({"a": True}, "a must be of type integer"),
        ({"a": "1"}, "a must be of type integer"),
        ({"a": 1.5}, "a must be of type integer"),
        ({"a": 1, "b": "long"}, "b must have at most 3 characters"),
        ({"a": 1, "b": 1}, "b must be of type string or null"),
        ({"a": 1, "c": [True] * 3}, "c must have 1 to 2 items"),
        ({"a": 1, "c": []}, "c must have 1 to 2 items"),
        ({"a": 1, "c": [True, 1]}, "c[1] must be of type boolean"),
        ({"a": 1, "d": "z"}, "d must be one of x, y: which way"),
        (
            {"a": 1, "e": 1},
            "the body has an unknown member 'e'; known here: a, b, c, d, inner, frozen",
        ),
        ({"a": 1, "inner": [{"qos": 1}, 7]}, "inner[1] must be of type object"),
        (
            {"a": 1, "inner": [{"qos": 1}, {"qos": 3}]},
            "inner[1].qos must be from 0 to 2, not 3",
        ),
        ({"a": 1, "inner": [{}]}, "inner[0] has no 'qos'"),
        ({"a": 1, "frozen": [{"qos": 1}, {"qos": 3}]}, "frozen[1].qos must be from 0 to 2, not 3"),
        ({"a": 1, "frozen": [{"qos": 1}] * 3}, "frozen must have at most 2 items"),
        (
            {"a": 1, "inner": [{"qos": 1, "user_property": [["name"]]}]},
            "inner[0].user_property[0] must have 2 items",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_where_and_what_would(
    value: object, sentence: str
) -> None:
    with pytest.raises(BodyError) as refused:
        parse_body(json.encode(value), Body)
    assert str(refused.value) == sentence


def test_a_body_that_is_no_json_is_refused() -> None:
    for content in (b"{", b"\xff", b'{"a": NaN}', b'{"b": "\xff"}', b'{"a": "1", "b": "\xff"}'):
        with pytest.raises(BodyError, match="the body is not JSON"):
            parse_body(content, Body)


@pytest.mark.parametrize("begin", [b"[", b'{"a":[', b'{"a":1,"inner":[', b'{"other":'])
@pytest.mark.parametrize("deep", [b"[", b'{"a":'])
def test_a_body_of_a_hundred_thousand_arrays_is_refused(begin: bytes, deep: bytes) -> None:
    with pytest.raises(BodyError, match="the body has too many arrays or objects"):
        parse_body(begin + deep * 100_000, Body)


def test_a_body_of_a_wrong_type_that_is_no_json_further_on_is_refused() -> None:
    with pytest.raises(BodyError, match="the body is not JSON"):
        parse_body(b'{"a": "1", ', Body)


def test_what_is_described_is_what_is_read_and_written() -> None:
    row = Operation(
        method="POST",
        path="/v1/things/{name}",
        name="changeThing",
        summary="Change a thing.",
        run=answer,
        answers={200: Answered("It is changed.", Inner), 404: Answered("There is none.")},
        body=Body,
    )
    found = document([row])
    described = found["paths"]["/v1/things/{name}"]["post"]
    components = {"components": found["components"]}
    body = described["requestBody"]["content"]["application/json"]["schema"]
    for value, fits in (({"a": 1, "c": [True]}, True), ({"a": 1, "c": []}, False)):
        assert Draft202012Validator(body | components).is_valid(value) == fits
    done = described["responses"]["200"]["content"]["application/json"]["schema"]
    assert Draft202012Validator(done | components).is_valid(to_builtins(Inner(qos=1)))
    refused = described["responses"]["404"]["content"]["application/json"]["schema"]
    problem = ProblemError(404, "no_such_thing", "there is none").document
    assert Draft202012Validator(refused | components).is_valid(problem)
    assert not Draft202012Validator(refused | components).is_valid({"error": "no_such_thing"})


class AdministratorAndReader:
    def __init__(self, required: bool) -> None:
        self.required = required

    async def identify(self, user_name: str, password: str, peer: str) -> Identity | None:
        assert peer == "127.0.0.1"
        roles = {"ada": {"administrator": True}, "spark": {"reader": True}, "gate": {}}
        return Identity(user_name=user_name, **roles[user_name]) if password == "a:b" else None


async def answer(_asked: Asked) -> web.StreamResponse | Struct:
    return Nothing()


async def fail(_asked: Asked) -> web.StreamResponse | Struct:
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
        answers={200: Answered("Done.", Nothing)},
        audience=audience,
    )


def statuses(protection: Protection, *asked: tuple[str, dict[str, str]]) -> list[int]:
    return [status for status, _ in answers(protection, *asked)]


def answers(
    protection: Protection, *asked: tuple[str, dict[str, str]]
) -> list[tuple[int, dict[str, str]]]:
    async def run() -> list[tuple[int, dict[str, str]]]:
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
                    found.append((response.status, await response.json()))
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
    # Whoever asks here asks from this host: that is not what is wrong.
    [(_, refused)] = answers(world, ("/v1/own", {}))
    assert "only where listen.host is loopback" in refused["detail"]


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


def test_an_answer_of_another_type_than_described_is_an_error_of_ours() -> None:
    async def another(_asked: Asked) -> web.StreamResponse | Struct:
        return Inner(qos=1)

    app = http.application(
        [operation("/open", audience=Audience.EVERYBODY, run=another)],
        Protection("127.0.0.1", metrics_public=False),
        Steps(lambda: 0, lambda: 0),
    )

    async def ask() -> int:
        async with TestClient(TestServer(app)) as client, client.get("/open") as response:
            return response.status

    assert asyncio.run(ask()) == 500


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
