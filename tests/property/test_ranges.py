"""The kernel's sets of ranges equal sets of integers, and their encoding is one to one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import ranges as model

POSITIONS = st.integers(0, 60)
RANGES = st.tuples(POSITIONS, POSITIONS)
CHANGES = st.lists(st.tuples(st.sampled_from(["insert", "insert", "remove_below"]), RANGES))


@given(changes=CHANGES, asked=RANGES)
def test_ranges_equal_a_set_of_integers(
    changes: list[tuple[str, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    compiled, twin = kernel.RangeSet(), model.RangeSet()
    for change, (start, end) in changes:
        arguments = (start, end) if change == "insert" else (start // 2,)
        getattr(compiled, change)(*arguments)
        getattr(twin, change)(*arguments)
        assert compiled.ranges() == twin.ranges()
    assert len(compiled) == len(twin.ranges())
    assert compiled.positions() == twin.positions()
    assert compiled.contains(asked[0]) == twin.contains(asked[0])
    assert compiled.contains_range(*asked) == twin.contains_range(*asked)
    assert compiled.gaps(*asked) == twin.gaps(*asked)
    assert bytes(compiled.encode()) == twin.encode()


@given(starts=st.lists(st.integers(0, 2**64 - 2), max_size=20), rest=st.binary(max_size=5))
def test_encoding_is_reversed_by_decoding(starts: list[int], rest: bytes) -> None:
    held = kernel.RangeSet([(start, min(start + start % 1_000 + 1, 2**64 - 1)) for start in starts])
    encoded = bytes(held.encode())
    decoded, taken = kernel.RangeSet.decode(encoded + rest)
    assert decoded.ranges() == held.ranges()
    assert taken == len(encoded)


@given(data=st.one_of(st.binary(max_size=40), st.lists(st.integers(0, 3), max_size=20).map(bytes)))
def test_any_bytes_are_a_set_in_its_one_encoding_or_refused(data: bytes) -> None:
    try:
        decoded, taken = kernel.RangeSet.decode(data)
    except ValueError:
        return
    assert bytes(decoded.encode()) == data[:taken]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x05",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2**64 - 1 ranges, and none follows.
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",  # 65 bits.
        b"\x80\x00",  # 0 in two bytes.
        b"\x01\x05\x00",  # An empty range.
        b"\x02\x05\x01\x00\x01",  # Two ranges that touch.
        b"\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # Past the last position.
    ],
)
def test_what_encode_does_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="a set of ranges has"):
        kernel.RangeSet.decode(data)
