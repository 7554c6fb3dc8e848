"""What retention has taken from readers counts once, whoever of them asks, and is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.admin.v1 import taken as taken_module
from holdfast.broker.admin.v1.taken import TakenFromReaders

RANGES = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda two: (two[0], sum(two)))


@given(st.lists(RANGES, max_size=30))
def test_an_offset_counts_once(ranges: list[tuple[int, int]]) -> None:
    taken = TakenFromReaders()
    for begin, end in ranges:
        taken.note("q", begin, end)
        taken.note("other", begin, begin + 1)
    assert taken.offsets("q") == len({at for begin, end in ranges for at in range(begin, end)})
    assert taken.offsets("nobody") == 0


def test_readers_and_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken_module, "READERS_TAKEN_FROM_MAXIMUM", 2)
    monkeypatch.setattr(taken_module, "TAKEN_RANGES_MAXIMUM", 3)
    taken = TakenFromReaders()
    for begin in range(0, 1_000, 10):
        taken.note("q", begin, begin + 5)
    assert taken.offsets("q") == 500
    assert len(taken._readers["q"].ranges) == 3
    taken.note("r", 0, 1)
    taken.note("q", 0, 1)
    taken.note("s", 0, 1)
    assert [taken.offsets(reader) for reader in "qrs"] == [501, 0, 1]
