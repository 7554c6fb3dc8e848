"""Moments in ISO 8601."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.moment import parse_moment_us


@pytest.mark.parametrize(
    ("text", "moment_us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00.000001", 1),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1969-12-31T23:59:59", 0),
        ("2026-01-31T12:00", 1_769_860_800_000_000),
    ],
)
def test_a_moment_is_utc_unless_it_says_otherwise(text: str, moment_us: int) -> None:
    assert parse_moment_us(text) == moment_us


@given(st.integers(0, 2**53))
def test_no_microsecond_is_lost(moment_us: int) -> None:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=moment_us)
    assert parse_moment_us(moment.isoformat()) == moment_us


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "12:00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_moment_us(text)
