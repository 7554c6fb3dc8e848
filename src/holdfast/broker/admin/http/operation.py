"""One operation of the HTTP interface: the row from which it is dispatched and documented.

Owns: how parameters and bodies are checked before an operation sees them, and how a refusal looks.
Never: knows what an operation does.

Invariants:
1. An operation sees only parameters and members of a body that its row names, each within its
   bounds. What is unknown is refused: a misspelt limit must not mean "no limit".
2. The document at /v1/openapi.json is made of the same rows, and of the same types of which bodies
   and answers are: what is described is what is read and written.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta, Struct, json, to_builtins
from multidict import MultiMapping

from holdfast.broker.admin.http.body import BodyError, parse_body

Schema = dict[str, Any]
"""JSON Schema."""
JSON: Final = "application/json"

BODY_BYTES_MAXIMUM: Final = 2 << 20
"""A message of the default largest packet in base64, and its properties."""
PAGE_ROWS_MAXIMUM: Final = 1_000
"""Rows of one answer: some hundred kilobytes of JSON, which take milliseconds to write."""
PAGE_ROWS_DEFAULT: Final = 100
TEXT_CHARACTERS_MAXIMUM: Final = 65_535
"""No text of MQTT is longer [MQTT-1.5.4]."""


FAULTS_BELOW: Final = "/api/v5/"
"""Where EMQX's REST interface of version 5 is, whose refusals look otherwise."""
FAULT_CODES: Final = {"unauthorized": "bad_api_key_or_secret"}
"""What EMQX calls what has another name here; all others have their own in capitals."""


class Problem(Struct, kw_only=True):
    """A refusal."""

    error: Annotated[str, Meta(description="A word for programs.")]
    detail: Annotated[str, Meta(description="What was wrong and what to do.")]


class Fault(Struct, kw_only=True):
    """A refusal where EMQX's tools ask."""

    code: Annotated[str, Meta(description="A word for programs, in capitals.")]
    message: Annotated[str, Meta(description="What was wrong and what to do.")]


class ProblemError(Exception):
    """A refusal: its status, a word for programs and a sentence for people."""

    def __init__(self, status: int, error: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.document = to_builtins(Problem(error=error, detail=detail)) | more


def refusal_form(path: str) -> type[Problem | Fault]:
    """How a refusal of what is asked for at this path looks."""
    return Fault if path.startswith(FAULTS_BELOW) else Problem


def refusal_document(problem: ProblemError, path: str) -> dict[str, Any]:
    """A refusal in the form that it has at this path."""
    if refusal_form(path) is Problem:
        return dict(problem.document)
    word = FAULT_CODES.get(problem.error, problem.error)
    fault = Fault(code=word.upper(), message=problem.document["detail"])
    return dict(to_builtins(fault))


class Nothing(Struct, forbid_unknown_fields=True):
    """Nothing more is said: as a body, or as an answer."""


Next = Annotated[str | None, Meta(description="`after` of the next page; null on the last one.")]
"""Where the page after this one begins."""


class Audience(Enum):
    """Who may ask for something, once credentials are set up."""

    EVERYBODY = "everybody"
    READERS = "who may read the log"
    PUBLISHERS = "whoever has a credential, as far as its rules allow"
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
    kind: Any = None
    """The type of the answer, of which its schema is made; `None`: it is no JSON."""
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, checked."""

    request: web.Request
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    """Of the type that the row names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    """How programs made from the document call it."""
    summary: str
    run: Callable[[Asked], Awaitable[web.StreamResponse | Struct]]
    """Answers with a value, which is written as JSON, or with a response of its own."""
    answers: Mapping[int, Answered]
    """What it answers itself; what any operation may answer is added to the document."""
    parameters: tuple[Parameter, ...] = ()
    body: type[Struct] | None = None
    takes: str | None = None
    """The type of a body that is no JSON, which the operation reads itself."""
    audience: Audience = Audience.ADMINISTRATORS

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Checks a request, and answers it."""
        known = {parameter.name for parameter in self.parameters}
        for name in request.query:
            if name not in known:
                among = ", ".join(sorted(known)) or "none"
                raise bad_request(f"unknown parameter {name!r}; known here: {among}")
        query = {each.name: each.read(request.query) for each in self.parameters}
        body = None if self.body is None else await _read_body(request, self.body)
        answer = await self.run(Asked(request, request.match_info, query, body))
        if not isinstance(answer, Struct):
            return answer
        assert isinstance(answer, self.answers[200].kind), "it answers with what it says"
        return written(answer)


def written(answer: object, status: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=json.encode(answer), status=status, content_type=JSON, charset="utf-8")


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


def listing(
    rows: str,
    page: type[Struct],
    run: Callable[[Asked], Awaitable[Struct]],
    summary: str,
    parameters: tuple[Parameter, ...] = (),
    audience: Audience = Audience.ADMINISTRATORS,
) -> Operation:
    """Asks for all rows of a kind, page by page, at `/v1/` and what they are called."""
    return Operation(
        method="GET",
        path=f"/v1/{rows}",
        name=f"list{rows.capitalize()}",
        summary=summary,
        run=run,
        parameters=(*parameters, LIMIT, AFTER),
        answers={200: Answered(f"A page of {rows}.", page)},
        audience=audience,
    )


async def _read_body(request: web.Request, kind: type[Struct]) -> Struct:
    # A page of another site can send text, but not this type without asking first.
    if request.content_type != JSON:
        raise ProblemError(
            415, "unsupported_media_type", f"the body must be JSON, Content-Type: {JSON}"
        )
    try:
        return parse_body(await request.read(), kind)
    except BodyError as error:
        raise bad_request(str(error)) from error
    except web.RequestPayloadError as error:
        raise bad_request("the body is not encoded as its headers say") from error
