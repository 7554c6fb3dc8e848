"""The steady clock: whatever somebody does to the host's."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.world import SteadyClock


class Host:
    """A host's clocks, set by hand."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.set_by_us = 0

    def wall_us(self) -> int:
        return 10**15 + int(self.passed_s * 1e6) + self.set_by_us

    def ticks_ns(self) -> int:
        return int(self.passed_s * 1e9)


steps = st.lists(
    st.tuples(st.floats(0.000_001, 100), st.integers(-(10**10), 10**10)), min_size=1, max_size=50
)


@given(steps)
def test_time_passes_as_it_really_does(steps: list[tuple[float, int]]) -> None:
    host = Host()
    clock = SteadyClock(host.wall_us, host.ticks_ns)
    before_us = clock.now_us()
    for passed_s, jump_us in steps:
        host.passed_s += passed_s
        host.set_by_us += jump_us
        now_us = clock.now_us()
        # It stands still at most for what it was drawn back by.
        assert 0 <= now_us - before_us <= passed_s * 1e6 * 1.02 + 2_000_000
        before_us = now_us


def test_it_agrees_with_the_host_in_the_end() -> None:
    host = Host()
    clock = SteadyClock(host.wall_us, host.ticks_ns)
    host.set_by_us = 3_600_000_000
    host.passed_s = 1.0
    assert clock.now_us() == 10**15 + 1_000_000
    for _ in range(4_000):
        host.passed_s += 100.0
        clock.now_us()
    assert abs(clock.now_us() - host.wall_us()) <= 1
