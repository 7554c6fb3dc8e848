"""The body of a request as a value of the type that its operation names.

Owns: how a body is read, and the words for what is wrong with one. Never: knows what is asked.

Invariants:
1. msgspec alone judges. Here words are found for what it has refused, in the schema of the same
   type, so that no bound is told but not kept, or kept but not told.
2. No text of the body is repeated: it may be a password.
"""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

T = TypeVar("T", bound=Struct)

_TYPES: Final[Mapping[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}
"""What JSON calls the types that it is decoded to."""
_BOUNDS: Final = (
    ("minimum", "maximum", "be {}", "from {} to {}"),
    ("minLength", "maxLength", "have {} characters", "{} to {}"),
    ("minItems", "maxItems", "have {} items", "{} to {}"),
)


class BodyError(Exception):
    """What is wrong with a body, where, and what would be right."""


def parse_body(content: bytes, kind: type[T]) -> T:
    """The value; raises a `BodyError`. No body at all is one that says nothing."""
    try:
        return _parse(content or b"{}", kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"the body is not JSON in UTF-8: {error}") from error
    except RecursionError as error:
        raise BodyError("the body has too many arrays or objects within one another") from error


def _parse(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        # What is wrong with its type may not be JSON further on, which is found here.
        fault = _fault(kind, msgspec.json.decode(content), "")
        raise BodyError(fault) from error


def _fault(kind: Any, value: object, where: str) -> str:
    """The first thing that is wrong within a value that was refused."""
    if isinstance(value, dict) and _is_struct(kind):
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        for field in msgspec.structs.fields(kind):
            if field.required and field.encode_name not in value:
                return f"{where or 'the body'} has no {field.encode_name!r}"
        unknown = [name for name in value if name not in names]
        if unknown and kind.__struct_config__.forbid_unknown_fields:
            known = ", ".join(names) or "none"
            return (
                f"{where or 'the body'} has an unknown member {unknown[0]!r}; known here: {known}"
            )
    for inner_kind, inner, inner_where in _within(kind, value, where):
        if not _fits(inner_kind, inner):
            return _fault(inner_kind, inner, inner_where)
    return f"{where or 'the body'} must {_wanted(msgspec.json.schema(kind), value)}"


def _within(kind: Any, value: object, where: str) -> Iterator[tuple[Any, object, str]]:
    """What a value consists of: the types of its parts, the parts, and where they are."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if isinstance(value, dict) and _is_struct(bare):
        for field in msgspec.structs.fields(bare):
            if field.encode_name in value:
                name = f"{where}.{field.encode_name}" if where else field.encode_name
                yield _plain(field.type), value[field.encode_name], name
    elif isinstance(value, list) and get_origin(bare) in (list, tuple):
        kinds = [each for each in get_args(bare) if each is not Ellipsis]
        for place, item in enumerate(value):
            yield kinds[min(place, len(kinds) - 1)], item, f"{where}[{place}]"


def _fits(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _plain(kind: Any) -> Any:
    """The type of what is given, where it may be left out too."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    given = tuple(each for each in get_args(kind) if each is not UnsetType)
    return Union[given]  # noqa: UP007 - made while it runs.


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _wanted(schema: Mapping[str, Any], value: object) -> str:
    """What would be right in place of a value, by the schema that it does not fit."""
    told = schema.get("description", "")
    told = f": {told}" if told else ""
    if "enum" in schema:
        return f"be one of {', '.join(map(str, schema['enum']))}{told}"
    among = [_resolved(schema, each) for each in schema.get("anyOf", [schema])]
    of_type = [each for each in among if each["type"] == _TYPES[type(value)]]
    if not of_type:
        return f"be of type {' or '.join(each['type'] for each in among)}{told}"
    given = f", not {value}" if isinstance(value, int) else ""
    return f"{_bounded(of_type[0])}{given}{told}"


def _resolved(whole: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    return found


def _bounded(schema: Mapping[str, Any]) -> str:
    for low_name, high_name, sentence, between in _BOUNDS:
        low, high = schema.get(low_name), schema.get(high_name)
        if high is not None:
            span = f"at most {high}" if low is None else between.format(low, high)
            return sentence.format(high if low == high else span)
    return f"be of type {schema['type']}"
