"""Key slots, their owners and rounds equal their twins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from holdfast.testing.model import selection as model

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


@pytest.mark.accepts("S4.140")
def test_the_order_key_hashes_to_its_slot() -> None:
    assert kernel.murmur3_32(b"Order-3459134") == 3_112_179_635
    assert kernel.key_slot(b"Order-3459134") == 6_067
    owners = kernel.Owners()
    owners.set([(0, 16_384, 3), (16_384, 65_536, 2)])
    assert owners.owner(kernel.key_slot(b"Order-3459134")) == 3


@given(
    ranges=st.lists(st.tuples(SLOTS, SLOTS, st.integers(1, 9)), max_size=5),
    asked=st.lists(st.integers(0, 65_535), min_size=1),
)
def test_owners_equal_a_list_of_slots(ranges: list[tuple[int, int, int]], asked: list[int]) -> None:
    compiled, twin = kernel.Owners(), model.Owners()
    for table in ([(100, 200, 7), (0, 100, 8)], ranges):
        try:
            twin.set(table)
        except ValueError:
            with pytest.raises(ValueError, match="key slots"):
                compiled.set(table)
        else:
            compiled.set(table)
        edges = [slot for start, end, _ in table for slot in (start - 1, start, end - 1, end)]
        for slot in asked + [edge for edge in edges if 0 <= edge < model.KEY_SLOTS]:
            assert compiled.owner(slot) == twin.owner(slot)


def test_each_holder_with_room_has_its_turn() -> None:
    holders = kernel.Round()
    assert holders.next([]) is None
    for holder in (1, 2, 3, 2):
        holders.join(holder)
    assert [holders.next([]) for _ in range(6)] == [1, 2, 3, 1, 2, 3]
    assert [holders.next([2]) for _ in range(4)] == [1, 3, 1, 3]
    assert holders.next([1, 2, 3]) is None
    assert holders.next([]) == 1


def test_a_round_keeps_its_order_when_one_leaves() -> None:
    holders = kernel.Round()
    for holder in (1, 2, 3, 4):
        holders.join(holder)
    assert [holders.next([]), holders.next([])] == [1, 2]
    holders.leave(1)
    holders.leave(9)
    assert [holders.next([]) for _ in range(4)] == [3, 4, 2, 3]
    holders.leave(4)
    assert [holders.next([]) for _ in range(3)] == [2, 3, 2]
