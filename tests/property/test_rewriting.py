"""What messages become that a bridge carries equals its twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import rewriting as model

LEVELS = st.sampled_from([b"a", b"b", b"", b"$c"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map(b"/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, rest: b"/".join([*levels, *rest]),
    st.lists(st.one_of(LEVELS, st.just(b"+")), min_size=1, max_size=3),
    st.sampled_from([[], [b"#"]]),
).filter(bool)
PARTS = st.lists(st.one_of(st.integers(0, 4), st.sampled_from([b"x", b"y/"])), max_size=4)
NAMES = st.sampled_from(["hops", "k", ""])
VALUES = st.sampled_from(["0", "1", "2", "7", "many", "", "-1", "99999999999"])
PAIRS = st.lists(st.tuples(NAMES, VALUES.filter(lambda text: len(text) < 11)), max_size=4)
RULES = st.lists(
    st.tuples(
        st.lists(FILTERS, min_size=1, max_size=2),
        st.one_of(st.none(), PARTS.filter(bool)),
        st.lists(st.tuples(st.sampled_from(["site", "k"]), VALUES), max_size=2),
    ),
    max_size=4,
)
HOPS = st.one_of(st.none(), st.tuples(st.just("hops"), st.integers(1, 3)))


@given(rules=RULES, hops=HOPS, topic=TOPICS, pairs=PAIRS)
def test_rewriting_equals_its_twin(
    rules: list[model.Rule],
    hops: tuple[str, int] | None,
    topic: bytes,
    pairs: list[model.Pair],
) -> None:
    # RETAIN is a flag of the packet, of which this knows nothing.
    taken = [(*rule, False) for rule in rules]
    found = kernel.Rewriting(taken, hops=hops).apply(topic, model.encode(pairs))
    assert found == model.apply(rules, hops, topic, pairs)


@given(filter_=FILTERS, topic=TOPICS, limit=st.integers(1, 5))
def test_a_message_ends_its_way_after_as_many_hops_as_it_may(
    filter_: bytes, topic: bytes, limit: int
) -> None:
    rules = [([filter_], [0], [], False), ([topic], [0], [], False)]
    rewriting = kernel.Rewriting(rules, hops=("hops", limit))
    properties, crossed = b"", 0
    while (made := rewriting.apply(topic, properties)) is not None:
        crossed += 1
        properties = made[1]
    assert crossed == limit


@pytest.mark.parametrize("filter_", [b"", b"a/#/b", b"a+", b"#a"])
def test_what_is_no_filter_is_refused(filter_: bytes) -> None:
    with pytest.raises(ValueError, match="no topic filter"):
        kernel.Rewriting([([filter_], None, [], False)])
