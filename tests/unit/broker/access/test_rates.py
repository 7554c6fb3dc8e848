"""How many of something there may be in a second."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.access.rates import Rate
from holdfast.core.units import SECOND_US


def test_as_many_as_the_rate_may_come_at_once_and_then_at_its_pace() -> None:
    rate = Rate(3)
    assert [rate.take(0) for _ in range(4)] == [True, True, True, False]
    assert not rate.take(SECOND_US // 3 - 1)
    assert rate.take(SECOND_US // 3 + 1)
    assert not rate.take(SECOND_US // 3 + 2)


def test_nothing_is_saved_up() -> None:
    rate = Rate(2)
    assert [rate.take(100 * SECOND_US) for _ in range(3)] == [True, True, False]
    assert [rate.take(200 * SECOND_US) for _ in range(3)] == [True, True, False]


def test_zero_is_without_limit() -> None:
    rate = Rate(0)
    assert all(rate.take(0) for _ in range(1_000))


@given(st.integers(1, 1_000), st.lists(st.integers(0, 2 * SECOND_US), max_size=200))
def test_no_stretch_of_time_has_more_than_its_share(per_second: int, pauses_us: list[int]) -> None:
    rate = Rate(per_second)
    at_us, taken = 0, 0
    for pause_us in pauses_us:
        at_us += pause_us
        taken += rate.take(at_us)
    assert taken <= per_second + at_us * per_second / SECOND_US
