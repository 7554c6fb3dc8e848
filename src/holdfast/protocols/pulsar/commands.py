"""Commands as values: from the bytes of a BaseCommand, and to a frame.

    command = read_request(data)          one of the classes of `fields`, or MalformedCommandError
    data = write_command(Success(request_id=7))            a frame: [total][size][BaseCommand]

Owns: the encoding of Protocol Buffers, as far as the fields of `fields` need it. Never: knows what
a command means, or a frame with a payload behind its command (those are the kernel's).

Invariants:
1. What is read has all required fields, text that is UTF-8, numbers that fit their fields, and
   members of the enumerations alone. Fields that are not listed are skipped.
2. A command costs its sender's bytes, of which the kernel bounds the number, and no nesting without
   end, as no message of `fields` holds one of its own kind.

Flow: kernel -> here -> handshake, lookup, producers, consumers -> here -> kernel.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

from holdfast.protocols.pulsar.fields import (
    FROM_BROKERS,
    FROM_CLIENTS,
    NUMBERS,
    Command,
    FeatureFlags,
    Schema,
)

COMMAND_TYPE: Final = 1
"""The field of BaseCommand that says which command it is."""
VARINT: Final = 0
FIXED_64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED_32: Final = 5
VARINT_BYTES_MAXIMUM: Final = 10
FIELD_NUMBER_MAXIMUM: Final = 2**29 - 1

RANGES: Final = {
    "u32": (0, 2**32),
    "u64": (0, 2**64),
    "i32": (-(2**31), 2**31),
    "i64": (-(2**63), 2**63),
}
"""What a number may be, by its kind."""


class MalformedCommandError(Exception):
    """A command's bytes are not what they should be; its sender is not one to go on with."""

    def __init__(self, command: str, field: str | None, reason: str) -> None:
        super().__init__(f"{command}: {reason}" if field is None else f"{command}.{field} {reason}")
        self.command = command
        self.field = field
        self.reason = reason


class _FieldError(Exception):
    """What is wrong; the caller knows where."""


def read_request(data: bytes) -> Command:
    """The command in the bytes of a BaseCommand that a client sent. Raises MalformedCommandError if
    they are none, or one that clients have no use for."""
    return _read(data, FROM_CLIENTS)


def read_answer(data: bytes) -> Command:
    """The same for what a broker sent."""
    return _read(data, FROM_BROKERS)


def write_command(command: Command) -> bytes:
    """The frame of a command: the total, the size, and a BaseCommand of these fields. Whatever is
    not `None` is written, also where it is the default: clients ask whether a field is there."""
    number = NUMBERS[type(command)]
    body = _message(command)
    base = b"".join(
        (
            _key(COMMAND_TYPE, VARINT),
            _varint(number),
            _key(number, LENGTH_DELIMITED),
            _varint(len(body)),
            body,
        )
    )
    return (len(base) + 4).to_bytes(4, "big") + len(base).to_bytes(4, "big") + base


def command_name(number: int) -> str:
    """A command's name for people, by its number in BaseCommand."""
    kind = FROM_CLIENTS.get(number) or FROM_BROKERS.get(number)
    return f"command {number}" if kind is None else kind.__name__


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    number: int
    wire_type: int
    message: type[Any] | None
    """The class of a field that is a message itself; its value is parsed with that."""
    parse: Callable[[Any], Any]
    """Any other value, from a varint or from the bytes of a field with a length."""
    write: Callable[[Any], bytes]
    """A value's bytes, with the length in front if it has one."""
    is_repeated: bool
    is_required: bool


def _read(data: bytes, known: dict[int, type[Command]]) -> Command:
    number: int | None = None
    bodies: dict[int, bytes] = {}
    try:
        for field, wire_type, value in _split(data):
            if field == COMMAND_TYPE and wire_type == VARINT:
                number = value
            elif wire_type == LENGTH_DELIMITED:
                bodies[field] = value
    except _FieldError as fault:
        raise MalformedCommandError("BaseCommand", None, str(fault)) from None
    if number is None:
        raise MalformedCommandError("BaseCommand", "type", "is missing")
    kind = known.get(number)
    if kind is None:
        reason = f"is {number}, which is not for this side"
        raise MalformedCommandError("BaseCommand", "type", reason)
    if number not in bodies:
        raise MalformedCommandError(kind.__name__, None, "its fields are missing")
    return cast(Command, _parse(kind, kind.__name__, bodies[number]))


def _parse(kind: type[Any], command: str, data: bytes, within: str = "") -> Any:
    fields = _FIELDS[kind]
    values: dict[str, Any] = {}
    name: str | None = None
    try:
        for number, wire_type, value in _split(data):
            field = fields.get(number)
            if field is None:
                continue
            name = within + field.name
            if wire_type != field.wire_type:
                raise _FieldError("has the wrong wire type")
            parsed = (
                field.parse(value)
                if field.message is None
                else _parse(field.message, command, value, name + ".")
            )
            if field.is_repeated:
                values.setdefault(field.name, []).append(parsed)
            else:
                values[field.name] = parsed
            name = None
    except _FieldError as fault:
        raise MalformedCommandError(command, name, str(fault)) from None
    for field in fields.values():
        if field.is_repeated:
            values[field.name] = tuple(values.get(field.name, ()))
        elif field.is_required and field.name not in values:
            raise MalformedCommandError(command, within + field.name, "is missing")
    return kind(**values)


def _message(message: Any) -> bytes:
    parts: list[bytes] = []
    for field in _FIELDS[type(message)].values():
        value = getattr(message, field.name)
        if value is None:
            continue
        for each in value if field.is_repeated else (value,):
            parts += (_key(field.number, field.wire_type), field.write(each))
    return b"".join(parts)


def _fields_of(kind: Any) -> dict[int, _Field]:
    hints = get_type_hints(kind, include_extras=True)
    found = [_field(each, hints[each.name]) for each in dataclasses.fields(kind)]
    return {field.number: field for field in found}


def _field(declared: "dataclasses.Field[Any]", hint: Any) -> _Field:
    """How a line of `fields` is read and written."""
    told, *marks = get_args(hint)
    number = marks[-1]
    kind = marks[0] if len(marks) > 1 else None
    if get_origin(told) in (Union, UnionType):
        told = next(each for each in get_args(told) if each is not NoneType)
    is_repeated = get_origin(told) is tuple
    if is_repeated:
        told = get_args(told)[0]
    if get_origin(told) is Annotated:
        told, kind = get_args(told)
    wire_type, parse, write = _codec(told, kind)
    return _Field(
        name=declared.name,
        number=number,
        wire_type=wire_type,
        message=told if wire_type == LENGTH_DELIMITED and told not in (str, bytes) else None,
        parse=parse,
        write=write,
        is_repeated=is_repeated,
        is_required=declared.default is dataclasses.MISSING,
    )


def _codec(told: Any, kind: str | None) -> tuple[int, Callable[..., Any], Callable[[Any], bytes]]:
    if told is str:
        return LENGTH_DELIMITED, _parse_text, lambda text: _sized(text.encode())
    if told is bytes:
        return LENGTH_DELIMITED, bytes, _sized
    if told is bool:
        return VARINT, bool, _varint
    if told is int:
        least, beyond = RANGES[cast(str, kind)]
        return VARINT, lambda value: _parse_number(value, least, beyond), _varint
    if issubclass(told, IntEnum):
        return VARINT, lambda value: _parse_member(value, told), _varint
    return LENGTH_DELIMITED, told, lambda message: _sized(_message(message))


def _parse_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _FieldError("is not UTF-8") from None


def _parse_number(value: int, least: int, beyond: int) -> int:
    # A negative number comes with 64 bits; some clients send one of 32 bits with 32.
    if least < 0 and value >= 2**63:
        value -= 2**64
    elif least < 0 and beyond <= value < 2 * beyond:
        value -= 2 * beyond
    if not least <= value < beyond:
        raise _FieldError("is a number that its field cannot hold")
    return value


def _parse_member(value: int, members: type[IntEnum]) -> IntEnum:
    try:
        return members(value)
    except ValueError:
        raise _FieldError(f"is {value}, which means nothing there") from None


def _split(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Field number, wire type and value of each field, in order."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if not 1 <= number <= FIELD_NUMBER_MAXIMUM:
            raise _FieldError("has a field number that there cannot be")
        value: Any
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
        else:
            if wire_type == LENGTH_DELIMITED:
                size, position = _read_varint(data, position)
            elif wire_type in (FIXED_32, FIXED_64):
                size = 4 if wire_type == FIXED_32 else 8
            else:
                raise _FieldError("has a wire type that is not used")
            if size > len(data) - position:
                raise _FieldError("ends early")
            value, position = data[position : position + size], position + size
        yield number, wire_type, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + VARINT_BYTES_MAXIMUM]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, position + index + 1
    raise _FieldError("has a number that does not end")


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


_FIELDS: Final = {kind: _fields_of(kind) for kind in (*NUMBERS, FeatureFlags, Schema)}
"""The fields of each class by their numbers."""
