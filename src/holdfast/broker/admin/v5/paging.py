"""Pages by number, and the kinds of parameter that EMQX's REST interface has.

Owns: how they are read, and what is told of a page. Never: knows what is on one.
"""

import re
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType
from multidict import MultiMapping

from holdfast.broker.admin.http.operation import (
    LIMIT,
    Asked,
    Parameter,
    bad_request,
    number,
)
from holdfast.broker.observe.clients import NumberedPage, Row
from holdfast.core.moment import parse_moment_us

PAGES_MAXIMUM: Final = 1_000_000
VALUES_MAXIMUM: Final = 1_000
"""Values of one parameter that is given several times."""
NODE: Final = "holdfast"
"""What EMQX calls a member of its cluster; there is one."""
PAGE: Final = number("page", 1, 1, PAGES_MAXIMUM, "Which page, from 1 on.")
PAGING: Final = (PAGE, LIMIT)


class Paged(Struct, kw_only=True):
    """What is told of a page."""

    page: int
    limit: int
    hasnext: bool
    count: Annotated[
        int | UnsetType,
        Meta(
            description="Rows of all pages; left out where they would have to be counted: on every"
            " page but the last of a list that is searched."
        ),
    ] = UNSET


def first_of(asked: Asked) -> int:
    """How many rows are before those of the page that is asked for."""
    return int((asked.query["page"] - 1) * asked.query["limit"])


def told(asked: Asked, page: NumberedPage[Row]) -> Paged:
    """What is told of this one."""
    return Paged(
        page=asked.query["page"],
        limit=asked.query["limit"],
        hasnext=page.has_next,
        count=UNSET if page.count is None else page.count,
    )


def texts(name: str, description: str) -> Parameter:
    """Any text, or several of which one fits; without it, none."""

    def read(query: MultiMapping[str]) -> tuple[str, ...]:
        found = tuple(query.getall(name, []))
        if len(found) > VALUES_MAXIMUM:
            raise bad_request(f"{name} is given more than {VALUES_MAXIMUM} times")
        return found

    schema = {"type": "array", "items": {"type": "string"}, "maxItems": VALUES_MAXIMUM}
    return Parameter(name, schema, description, read)


def flag(name: str, description: str) -> Parameter:
    """True or false; without it, neither."""

    def read(query: MultiMapping[str]) -> bool | None:
        text = query.get(name)
        if text not in (None, "true", "false"):
            raise bad_request(f"{name} must be true or false, not {text!r}")
        return None if text is None else text == "true"

    return Parameter(name, {"type": "boolean"}, description, read)


def digit(name: str, values: tuple[int, ...], description: str) -> Parameter:
    """One of a few numbers; without it, none."""

    def read(query: MultiMapping[str]) -> int | None:
        text = query.get(name)
        if text is not None and text not in map(str, values):
            among = ", ".join(map(str, values))
            raise bad_request(f"{name} must be one of {among}, not {text!r}")
        return None if text is None else int(text)

    return Parameter(name, {"type": "integer", "enum": list(values)}, description, read)


def moment(name: str, description: str) -> Parameter:
    """A time, in milliseconds since 1970 or in ISO 8601, as microseconds; without it, none."""

    def read(query: MultiMapping[str]) -> int | None:
        text = query.get(name)
        if text is None:
            return None
        if re.fullmatch(r"[0-9]{1,15}", text):
            return int(text) * 1_000
        try:
            return parse_moment_us(text)
        except ValueError as error:
            expected = "milliseconds since 1970 or a time such as 2024-12-05T10:00:00Z"
            raise bad_request(f"{name} must be {expected}, not {text!r}") from error

    return Parameter(name, {"type": "string"}, description, read)
