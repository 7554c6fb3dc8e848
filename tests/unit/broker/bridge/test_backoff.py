"""How long a bridge waits before its next attempt."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.bridge.backoff import Backoff

SHARES = st.floats(0, 1, exclude_max=True)
CAP_S, LONGEST_S = 120, 150
A_YEAR_OF_ATTEMPTS = 300_000


@pytest.mark.accepts("S1.51", "S1.52", "S1.53")
def test_waits_double_from_one_second_to_two_minutes() -> None:
    backoff = Backoff()
    waits = [backoff.next_wait_s(0) for _ in range(10)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, CAP_S, CAP_S, CAP_S]


@pytest.mark.accepts("S1.54")
@given(share=SHARES, failures=st.integers(0, 20))
def test_up_to_a_quarter_is_added_to_each_wait(share: float, failures: int) -> None:
    plain, spread = Backoff(), Backoff()
    for _ in range(failures):
        plain.next_wait_s(0)
        spread.next_wait_s(share)
    least = plain.next_wait_s(0)
    assert least <= spread.next_wait_s(share) <= least * 1.25


@pytest.mark.accepts("S1.53", "S1.54")
@given(share=SHARES)
def test_the_wait_stays_at_the_cap_for_ever(share: float) -> None:
    backoff = Backoff()
    backoff.failures = A_YEAR_OF_ATTEMPTS
    assert CAP_S <= backoff.next_wait_s(share) <= LONGEST_S
    assert CAP_S <= backoff.next_wait_s(share) <= LONGEST_S


@pytest.mark.accepts("S1.55")
@given(failures=st.integers(1, 50))
def test_after_a_success_the_first_wait_is_a_second_again(failures: int) -> None:
    backoff = Backoff()
    for _ in range(failures):
        backoff.next_wait_s(0)
    backoff.succeeded()
    assert backoff.next_wait_s(0) == 1


def test_who_is_refused_waits_as_long_as_anybody() -> None:
    backoff = Backoff()
    assert backoff.refused(0) == CAP_S
    assert backoff.next_wait_s(0) == 2, "a network that fails after it is tried soon"


@pytest.mark.accepts("S1.56")
def test_a_hundred_bridges_are_spread_over_the_window_of_each_step() -> None:
    random = Random(7)
    bridges = [Backoff() for _ in range(100)]
    for step in range(10):
        least = min(2**step, CAP_S)
        waits = [bridge.next_wait_s(random.random()) for bridge in bridges]
        tenths = {int((wait - least) / (least * 0.25) * 10) for wait in waits}
        assert tenths == set(range(10)), f"step {step}"
