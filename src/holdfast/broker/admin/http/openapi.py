"""The OpenAPI document, made of the rows that requests are dispatched by.

Owns: the form of the document. Never: names an operation.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from holdfast import __version__
from holdfast.broker.admin.http.operation import PROBLEM, Answered, Asked, Audience, Operation

VERSION: Final = "3.1.0"
ANY: Final = {
    400: "The request cannot be right.",
    500: "The log cannot be read, or the broker has met an error of its own.",
    503: "Not now: the broker is busy, or its disk does not answer.",
}
PROTECTED: Final = {401: "An administrator has to ask.", 403: "Not from there."}
WITH_BODY: Final = {413: "The body is too large.", 415: "The body is not JSON."}


def operation(described: list[Operation]) -> Operation:
    """The operation that answers with the document of all, itself included."""
    rows: list[Operation] = []

    async def answer(_asked: Asked) -> dict[str, Any]:
        return document(rows)

    own = Operation(
        method="GET",
        path="/v1/openapi.json",
        name="describeInterface",
        summary="This document.",
        run=answer,
        answers={200: Answered("An OpenAPI document.", {"type": "object"})},
    )
    rows += [*described, own]
    return own


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Look at a broker and administer it. Every refusal says what was wrong.",
        },
        "paths": paths,
        "components": {
            "schemas": {"problem": PROBLEM},
            "securitySchemes": {
                role: {"type": "http", "scheme": "basic"} for role in ("administrator", "reader")
            },
        },
    }


def _described(each: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "parameters": [*_in_path(each.path), *_in_query(each)],
        "responses": _responses(each),
    }
    if each.audience is Audience.ADMINISTRATORS:
        found["security"] = [{"administrator": []}, {}]
    elif each.audience is Audience.READERS:
        found["security"] = [{"reader": []}, {"administrator": []}, {}]
    if each.body is not None:
        content = {"application/json": {"schema": each.body}}
        found["requestBody"] = {"required": bool(each.body.get("required")), "content": content}
    return found


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _in_query(each: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": "query",
            "required": False,
            "description": parameter.description,
            "schema": parameter.schema,
        }
        for parameter in each.parameters
    ]


def _responses(each: Operation) -> dict[str, Any]:
    is_public = each.audience is Audience.EVERYBODY
    usual = ANY | ({} if is_public else PROTECTED) | (WITH_BODY if each.body is not None else {})
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/problem"}}}
    found: dict[str, Any] = {
        str(status): {"description": text, "content": problem} for status, text in usual.items()
    }
    for status, answered in each.answers.items():
        told: dict[str, Any] = {"description": answered.description}
        if status >= HTTPStatus.BAD_REQUEST:
            told["content"] = problem
        else:
            told["content"] = {answered.content_type: {"schema": answered.schema or {}}}
        found[str(status)] = told
    return dict(sorted(found.items()))
