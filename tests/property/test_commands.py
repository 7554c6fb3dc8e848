"""Commands come back from their bytes, and any bytes are a command or malformed."""

import contextlib
import dataclasses
from enum import IntEnum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocols.pulsar.commands import (
    RANGES,
    MalformedCommandError,
    read_answer,
    read_request,
    write_command,
)
from holdfast.protocols.pulsar.fields import FROM_BROKERS, FROM_CLIENTS, NUMBERS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """What a field of this kind may hold; `None` is told apart from what is there."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        if kind is int and marks[0] in RANGES:
            least, beyond = RANGES[marks[0]]
            edges = st.sampled_from([least, beyond - 1, 0, 1, 127, 128])
            return edges | st.integers(least, beyond - 1)
        return values(kind)
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if get_args(hint):
        return st.one_of(
            [st.none() if each is NoneType else values(each) for each in get_args(hint)]
        )
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(hint)
    simple = {str: TEXTS, bytes: st.binary(max_size=12), bool: st.booleans()}
    return simple[hint] if hint in simple else commands(hint)


def commands(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(
        kind, **{each.name: values(hints[each.name]) for each in dataclasses.fields(kind)}
    )


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_command_comes_back_from_its_frame(kind: type[Any], data: st.DataObject) -> None:
    command = data.draw(commands(kind))
    frame = write_command(command)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == len(frame) - 8
    read = read_request if kind in FROM_CLIENTS.values() else read_answer
    assert read(frame[8:]) == command


@given(data=st.binary(max_size=64), number=st.sampled_from(sorted(FROM_CLIENTS | FROM_BROKERS)))
def test_any_bytes_are_a_command_or_malformed(data: bytes, number: int) -> None:
    key = number << 3 | 2
    keys = [key] if key < 0x80 else [key & 0x7F | 0x80, key >> 7]
    frame = bytes([8, number, *keys, len(data)]) + data
    for read in (read_request, read_answer):
        with contextlib.suppress(MalformedCommandError):
            assert type(read(frame)) in NUMBERS


@given(at=st.integers(0, 200), data=st.data())
def test_a_command_that_ends_early_is_malformed(at: int, data: st.DataObject) -> None:
    command = data.draw(commands(FROM_CLIENTS[4]))
    body = write_command(command)[8:]
    if at < len(body):
        with pytest.raises(MalformedCommandError):
            read_request(body[:at])
