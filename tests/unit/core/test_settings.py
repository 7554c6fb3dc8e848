"""Kinds of settings: text to value and back."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config import SETTINGS
from holdfast.core.settings import Kind, boolean, duration, integer, or_automatic, port, size, texts

EXBIBYTE = 2**60


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (size(0, EXBIBYTE), "64MiB", 64 * 2**20),
        (size(0, EXBIBYTE), "10 gb", 10**10),
        (size(0, EXBIBYTE), "512", 512),
        (size(0, EXBIBYTE), 512, 512),
        (duration(-1, 10**9), "7d", 604_800),
        (duration(-1, 10**9), "90m", 5_400),
        (duration(-1, 10**9), "-1", -1),
        (port(), "off", None),
        (port(), "0", 0),
        (boolean(), "TRUE", True),
        (or_automatic(integer(1, 2)), "auto", 0),
        (or_automatic(integer(1, 2)), "2", 2),
        (texts(bool, "a word"), "a/+, b/#", ("a/+", "b/#")),
        (texts(bool, "a word"), ["a/+"], ("a/+",)),
        (texts(bool, "a word"), "", ()),
    ],
)
def test_values_are_read(kind: Kind, written: object, value: object) -> None:
    assert kind.parse(written) == value


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (size(0, EXBIBYTE), "64 Mi"),
        (size(0, EXBIBYTE), "1.5GB"),
        (size(0, EXBIBYTE), 1.5),
        (size(0, EXBIBYTE), "9" * 40),
        (duration(0, 60), "2m"),
        (duration(0, 60), True),
        (integer(0, 5), "\u0665x"),
        (port(), "-1"),
        (boolean(), "yes"),
        (texts(bool, "a word"), 5),
    ],
)
def test_what_is_not_a_value_is_refused(kind: Kind, written: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        kind.parse(written)


@given(st.integers(0, EXBIBYTE))
def test_a_size_reads_back_as_it_was_shown(number: int) -> None:
    kind = size(0, EXBIBYTE)
    assert kind.parse(kind.show(number)) == number


@given(st.integers(-1, 10**12))
def test_a_duration_reads_back_as_it_was_shown(number: int) -> None:
    kind = duration(-1, 10**12)
    assert kind.parse(kind.show(number)) == number


@given(
    st.text() | st.integers() | st.booleans() | st.floats() | st.none() | st.lists(st.integers())
)
def test_every_kind_gives_a_value_or_refuses(written: object) -> None:
    for row in SETTINGS.values():
        with contextlib.suppress(ValueError):
            row.kind.parse(written)


def test_every_default_reads_back_as_it_was_shown() -> None:
    for row in SETTINGS.values():
        value = row.kind.parse(row.default)
        assert row.kind.parse(row.kind.show(value)) == value
