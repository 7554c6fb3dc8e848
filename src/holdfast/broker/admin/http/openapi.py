"""The OpenAPI document, made of the rows that requests are dispatched by.

Owns: the form of the document. Never: names an operation, or describes a body or an answer: their
types do.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from aiohttp import web
from msgspec.json import schema_components
from msgspec.structs import fields

from holdfast import __version__
from holdfast.broker.admin.http.operation import (
    JSON,
    Answered,
    Asked,
    Audience,
    Fault,
    Operation,
    Problem,
    Schema,
    refusal_form,
    written,
)

VERSION: Final = "3.1.0"
BAD_REQUEST: Final = 400
"""The statuses from here on are refusals."""
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

    async def answer(_asked: Asked) -> web.Response:
        return written(document(rows))

    own = Operation(
        method="GET",
        path="/v1/openapi.json",
        name="describeInterface",
        summary="This document.",
        run=answer,
        answers={200: Answered("An OpenAPI document.", dict[str, Any])},
    )
    rows += [*described, own]
    return own


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The document of these operations."""
    rows = list(operations)
    kinds = _kinds(rows)
    schemas, components = schema_components(kinds, ref_template="#/components/schemas/{name}")
    known = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in rows:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each, known)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Look at a broker and administer it. Every refusal says what was wrong.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                role: {"type": "http", "scheme": "basic"}
                for role in ("administrator", "reader", "publisher")
            },
        },
    }


def _kinds(operations: list[Operation]) -> list[Any]:
    """The types of all bodies and answers, each once."""
    found: dict[Any, None] = {Problem: None, Fault: None}
    for each in operations:
        found |= dict.fromkeys([] if each.body is None else [each.body])
        found |= dict.fromkeys(it.kind for it in each.answers.values() if it.kind is not None)
    return list(found)


def _described(each: Operation, schemas: Mapping[Any, Schema]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "parameters": [*_in_path(each.path), *_in_query(each)],
        "responses": _responses(each, schemas),
    }
    if each.audience is Audience.ADMINISTRATORS:
        found["security"] = [{"administrator": []}, {}]
    elif each.audience is Audience.READERS:
        found["security"] = [{"reader": []}, {"administrator": []}, {}]
    elif each.audience is Audience.PUBLISHERS:
        found["security"] = [{"publisher": []}, {"administrator": []}, {}]
    if each.body is not None:
        is_required = any(field.required for field in fields(each.body))
        content = {JSON: {"schema": schemas[each.body]}}
        found["requestBody"] = {"required": is_required, "content": content}
    elif each.takes is not None:
        found["requestBody"] = {"required": True, "content": {each.takes: {"schema": {}}}}
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


def _responses(each: Operation, schemas: Mapping[Any, Schema]) -> dict[str, Any]:
    is_public = each.audience is Audience.EVERYBODY
    usual = ANY | ({} if is_public else PROTECTED) | (WITH_BODY if each.body is not None else {})
    problem = Answered("", refusal_form(each.path))
    answers = {status: replace(problem, description=text) for status, text in usual.items()}
    answers |= {
        status: it if status < BAD_REQUEST else replace(problem, description=it.description)
        for status, it in each.answers.items()
    }
    found = {}
    for status, it in sorted(answers.items()):
        schema = {} if it.kind is None else schemas[it.kind]
        content = {it.content_type: {"schema": schema}}
        found[str(status)] = {"description": it.description, "content": content}
    return found
