"""What a delivery tells of its message equals its twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import identity as model
from tests.property.twins.rewriting import Pair, encode

NAMES = st.sampled_from(["id", "i", "", "id2"])
PAIRS = st.lists(st.tuples(NAMES, st.text(max_size=8)), max_size=5)
OFFSETS = st.one_of(st.none(), st.integers(0, 2**64 - 1))


@pytest.mark.accepts("S3.66")
@given(name=NAMES, prefix=st.text(max_size=8), pairs=PAIRS, offset=OFFSETS)
def test_identity_equals_its_twin(
    name: str, prefix: str, pairs: list[Pair], offset: int | None
) -> None:
    told = kernel.MessageIdentity(name, prefix).tell(encode(pairs), offset)
    assert told == model.tell(name, prefix, pairs, offset)
