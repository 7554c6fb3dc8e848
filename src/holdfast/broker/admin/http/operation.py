"""One operation of the HTTP interface: the row from which it is dispatched and documented.

Owns: how parameters and bodies are checked before an operation sees them, and how a refusal looks.
Never: knows what an operation does.

Invariants:
1. An operation sees only parameters and members of a body that its row names, each within its
   bounds. What is unknown is refused: a misspelt limit must not mean "no limit".
2. The document at /v1/openapi.json is made of the same rows.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from aiohttp import web
from multidict import MultiMapping

Schema = dict[str, Any]
"""JSON Schema, of which `check` knows what is used here."""

BODY_BYTES_MAXIMUM: Final = 2 << 20
"""A message of the default largest packet in base64, and its properties."""
PAGE_ROWS_MAXIMUM: Final = 1_000
"""Rows of one answer: some hundred kilobytes of JSON, which take milliseconds to write."""
PAGE_ROWS_DEFAULT: Final = 100
TEXT_CHARACTERS_MAXIMUM: Final = 65_535
"""No text of MQTT is longer [MQTT-1.5.4]."""


class ProblemError(Exception):
    """A refusal: its status, a word for programs and a sentence for people."""

    def __init__(self, status: int, error: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {"error": error, "detail": detail, **more}


PROBLEM: Final[Schema] = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {
        "error": {"type": "string", "description": "A word for programs."},
        "detail": {"type": "string", "description": "What was wrong and what to do."},
    },
}


class Audience(Enum):
    """Who may ask for something, once credentials are set up."""

    EVERYBODY = "everybody"
    READERS = "who may read the log"
    ADMINISTRATORS = "administrators"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    schema: Schema
    description: str
    read: Callable[[MultiMapping[str]], Any]
    """Its value, of the whole query; raises what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What an operation may answer."""

    description: str
    schema: Schema | None = None
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, checked."""

    request: web.Request
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    """How programs made from the document call it."""
    summary: str
    run: Callable[[Asked], Awaitable[web.StreamResponse | dict[str, Any]]]
    """Answers with a JSON document, or with a response of its own."""
    answers: Mapping[int, Answered]
    """What it answers itself; what any operation may answer is added to the document."""
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    audience: Audience = Audience.ADMINISTRATORS

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Checks a request, and answers it."""
        known = {parameter.name for parameter in self.parameters}
        for name in request.query:
            if name not in known:
                among = ", ".join(sorted(known)) or "none"
                raise bad_request(f"unknown parameter {name!r}; known here: {among}")
        query = {each.name: each.read(request.query) for each in self.parameters}
        body = {} if self.body is None else await _read_body(request, self.body)
        answer = await self.run(Asked(request, request.match_info, query, body))
        return web.json_response(answer) if isinstance(answer, dict) else answer


def bad_request(sentence: str) -> ProblemError:
    """The request cannot be right, whatever the state of the broker."""
    return ProblemError(400, "bad_request", sentence)


def number(name: str, default: int, low: int, high: int, description: str) -> Parameter:
    """A whole number within its bounds."""

    def read(query: MultiMapping[str]) -> int:
        text = query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise bad_request(f"{name} must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return Parameter(name, schema, description, read)


def text(name: str, description: str) -> Parameter:
    """Any text; without it, an empty one."""

    def read(query: MultiMapping[str]) -> str:
        found: str = query.get(name, "")
        if len(found) > TEXT_CHARACTERS_MAXIMUM:
            raise bad_request(f"{name} is longer than {TEXT_CHARACTERS_MAXIMUM} characters")
        return found

    schema = {"type": "string", "maxLength": TEXT_CHARACTERS_MAXIMUM}
    return Parameter(name, schema, description, read)


def choice(name: str, words: tuple[str, ...], description: str) -> Parameter:
    """One of a few words; without it, the first."""

    def read(query: MultiMapping[str]) -> str:
        found: str = query.get(name, words[0])
        if found not in words:
            raise bad_request(f"{name} must be one of {', '.join(words)}, not {found!r}")
        return found

    schema = {"type": "string", "enum": list(words), "default": words[0]}
    return Parameter(name, schema, description, read)


LIMIT: Final = number(
    "limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAXIMUM, "The most rows of one answer."
)
AFTER: Final = text(
    "after", "Where the page before this one ended: the `next` of its answer. The first has none."
)


def page_of(name: str, row: Schema) -> Schema:
    """An answer of rows, and where the next one begins."""
    return {
        "type": "object",
        "required": [name, "next"],
        "properties": {
            name: {"type": "array", "items": row},
            "next": {
                "type": ["string", "null"],
                "description": "`after` of the next page; null on the last one.",
            },
        },
    }


def listing(
    name: str,
    rows: str,
    row: Schema,
    run: Callable[[Asked], Awaitable[dict[str, Any]]],
    summary: str,
    parameters: tuple[Parameter, ...] = (),
) -> Operation:
    """Asks for all rows of a kind, page by page, at `/v1/` and what they are called."""
    return Operation(
        method="GET",
        path=f"/v1/{rows}",
        name=name,
        summary=summary,
        run=run,
        parameters=(*parameters, LIMIT, AFTER),
        answers={200: Answered(f"A page of {rows}.", page_of(rows, row))},
    )


def row_of(**columns: str | tuple[str, ...]) -> Schema:
    """An object of columns, each given by its type; all are always there."""
    properties = {
        name: {"type": list(kind) if isinstance(kind, tuple) else kind}
        for name, kind in columns.items()
    }
    return {"type": "object", "required": list(columns), "properties": properties}


async def _read_body(request: web.Request, schema: Schema) -> dict[str, Any]:
    # A page of another site can send text, but not this type without asking first.
    if request.content_type != "application/json":
        raise ProblemError(
            415, "unsupported_media_type", "the body must be JSON, Content-Type: application/json"
        )
    content = await request.read()
    try:
        body = json.loads(content or b"{}")
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    check(schema, body, "the body")
    found: dict[str, Any] = body
    return found


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def check(schema: Schema, value: object, where: str) -> None:
    """Raises what is wrong with a value by its schema."""
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        raise bad_request(f"{where} must be of type {' or '.join(kinds)}")
    if "enum" in schema and value not in schema["enum"]:
        raise bad_request(f"{where} must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        raise bad_request(f"{where} is longer than {schema['maxLength']} characters")
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            raise bad_request(f"{where} must be from {low} to {high}, not {value}")
    if isinstance(value, list):
        _check_items(schema, value, where)
    if isinstance(value, dict):
        _check_members(schema, value, where)


def _is_of(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _check_items(schema: Schema, value: list[object], where: str) -> None:
    if len(value) > schema.get("maxItems", len(value)):
        raise bad_request(f"{where} has more than {schema['maxItems']} items")
    for place, item in enumerate(value):
        check(schema.get("items", {}), item, f"{where}[{place}]")


def _check_members(schema: Schema, value: dict[str, object], where: str) -> None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            raise bad_request(f"{where} has no {name!r}")
    for name, item in value.items():
        if name in properties:
            check(properties[name], item, name)
        elif schema.get("additionalProperties") is False:
            known = ", ".join(properties) or "none"
            raise bad_request(f"{where} has an unknown member {name!r}; known here: {known}")
        elif isinstance(schema.get("additionalProperties"), dict):
            check(schema["additionalProperties"], item, name)
