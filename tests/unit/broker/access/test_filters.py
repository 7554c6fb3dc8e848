"""Coverage and overlap of topic filters, against what the kernel matches."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.broker.access.filters import covers, overlap
from holdfast.kernel import is_valid_topic_filter, is_valid_topic_name, topic_matches

LEVELS = ["a", "b", "", "$SYS"]
names = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join)
topic_names = names.filter(lambda name: is_valid_topic_name(name.encode()))


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    found = "/".join(levels)
    return found if is_valid_topic_filter(found.encode()) else "#"


# A level that neither filter names stands for all that they do not name.
EVERY_LEVEL = [*LEVELS, "c"]


def every_topic(levels: int) -> list[str]:
    found = [[]]
    for _ in range(levels):
        found += [[*name, level] for name in found for level in EVERY_LEVEL]
    whole = {"/".join(name) for name in found if name}
    return sorted(name for name in whole if is_valid_topic_name(name.encode()))


TOPICS = every_topic(4)


def matched(topic_filter: str) -> set[str]:
    return {name for name in TOPICS if topic_matches(topic_filter.encode(), name.encode())}


@given(topic_filters(), topic_filters(), topic_names)
def test_what_is_covered_is_matched(wide: str, narrow: str, name: str) -> None:
    if covers(wide, narrow) and topic_matches(narrow.encode(), name.encode()):
        assert topic_matches(wide.encode(), name.encode())


@given(topic_filters(), topic_filters(), topic_names)
def test_what_both_match_is_an_overlap(one: str, other: str, name: str) -> None:
    if topic_matches(one.encode(), name.encode()) and topic_matches(other.encode(), name.encode()):
        assert overlap(one, other)
        assert overlap(other, one)


short = topic_filters().filter(lambda item: item.count("/") <= 2)


@given(short, short)
@example("/#", "+")
def test_coverage_and_overlap_are_exact(one: str, other: str) -> None:
    """Among all topics of up to four levels there is a witness for whatever is not covered."""
    assert covers(one, other) == (matched(other) <= matched(one))
    assert overlap(one, other) == bool(matched(one) & matched(other))


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("#", "a/+/b", True),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/+", "a/b", True),
        ("+/#", "#", True),
        ("a/+", "a/#", False),
        ("a/b", "a/+", False),
        ("#", "$SYS/a", False),
        ("+/a", "$SYS/a", False),
        ("$SYS/#", "$SYS/+/a", True),
        ("a/#", "#", False),
    ],
)
def test_coverage(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected
