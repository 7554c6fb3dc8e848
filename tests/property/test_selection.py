"""Key slots and their owners equal their twins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import selection as model

SLOTS = st.one_of(st.integers(0, 70_000), st.sampled_from([0, 16_384, 32_768, 65_535, 65_536]))


@given(key=st.binary(max_size=40))
def test_hash_equals_its_definition(key: bytes) -> None:
    assert kernel.murmur3_32(key) == model.murmur3_32(key)
    assert kernel.key_slot(key) == model.murmur3_32(key) % model.KEY_SLOTS


@pytest.mark.parametrize(
    ("key", "hashed"), [(b"", 0), (b"test", 0xBA6BD213), (b"Hello, world!", 0xC0363E43)]
)
def test_hash_equals_published_vectors(key: bytes, hashed: int) -> None:
    assert kernel.murmur3_32(key) == hashed


@pytest.mark.accepts("S4.136", "S4.139", "S4.140")
def test_the_order_key_hashes_to_its_slot() -> None:
    assert kernel.murmur3_32(b"Order-3459134") == 3_112_179_635
    assert kernel.key_slot(b"Order-3459134") == 6_067
    owners = kernel.Selection("topic", [(0, 16_384, 3), (16_384, 65_536, 2)])
    assert owners.owner(kernel.key_slot(b"Order-3459134")) == 3


@given(
    ranges=st.lists(st.tuples(SLOTS, SLOTS, st.integers(1, 9)), max_size=5),
    asked=st.lists(st.integers(0, 65_535), min_size=1),
)
def test_owners_equal_a_list_of_slots(ranges: list[tuple[int, int, int]], asked: list[int]) -> None:
    twin = model.Owners()
    try:
        twin.set(ranges)
    except ValueError:
        with pytest.raises(ValueError, match="key slots"):
            kernel.Selection("publisher", ranges)
        return
    compiled = kernel.Selection("publisher", ranges)
    edges = [slot for start, end, _ in ranges for slot in (start - 1, start, end - 1, end)]
    for slot in asked + [edge for edge in edges if 0 <= edge < model.KEY_SLOTS]:
        assert compiled.owner(slot) == twin.owner(slot)


def test_a_way_to_choose_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="by luck is no way to choose"):
        kernel.Selection("by luck")  # type: ignore[arg-type]
