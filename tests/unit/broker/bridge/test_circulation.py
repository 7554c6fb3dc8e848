"""What comes back to a bridge, and what only looks so."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.broker.bridge.circulation import (
    AGAIN_RATE,
    EMPTIED_S,
    PROOFS,
    QUIET_S,
    RUN_S,
    WINDOW_S,
    Circulation,
    Step,
    Traffic,
)

HELD_S = EMPTIED_S + WINDOW_S
LONG_S = 7_200


class Traced:
    """A bridge second by second, with messages of QoS 0 alone."""

    def __init__(self) -> None:
        self.circulation = Circulation()
        self.holds: list[int] = []
        """The seconds in which messages began to be held."""
        self.is_guilty = False
        self._again = self._came = self._second = 0

    def go(self, seconds: int, again: int, came: Callable[[bool], int]) -> None:
        """So many seconds: `again` messages that have been there go out in each that is not held,
        and `came` says how many come in one that is held, or is not."""
        for _ in range(seconds):
            is_held = self.circulation.is_holding
            self._second += 1
            self._again += 0 if is_held else again
            self._came += came(is_held)
            step = self.circulation.second(Traffic(self._again, self._came, 0), may_hold=True)
            if step is Step.HOLD and not is_held:
                self.holds.append(self._second)
            if step is Step.JUDGE:
                before, held = self.circulation.windows()
                counts = [end.passing - begin.passing for begin, end in (*before, held)]
                self.is_guilty |= self.circulation.judge(counts[:-1], counts[-1])


def circle(rate: int, fresh: int = 0) -> Callable[[bool], int]:
    """What comes is what was sent, and something new."""
    return lambda is_held: fresh if is_held else rate + fresh


def steady(rate: int) -> Callable[[bool], int]:
    """What comes has nothing to do with what was sent."""
    return lambda _is_held: rate


def in_bursts(period_s: int, messages: int) -> Callable[[bool], int]:
    """All of it in one second of several."""

    def seconds() -> Iterator[int]:
        while True:
            yield messages
            yield from (0 for _ in range(period_s - 1))

    each = seconds()
    return lambda _is_held: next(each)


@pytest.mark.parametrize("rate", [AGAIN_RATE, 50_000])
@pytest.mark.parametrize("fresh_share", [0, 0.9])
def test_a_circle_is_proven_by_what_does_not_come(rate: int, fresh_share: float) -> None:
    traced = Traced()
    traced.go(PROOFS * (RUN_S + HELD_S + 2), rate, circle(rate, int(rate * fresh_share)))
    assert traced.is_guilty
    assert len(traced.holds) == PROOFS


@pytest.mark.parametrize("rate", [AGAIN_RATE, 50_000])
def test_a_device_that_says_the_same_is_held_up_ever_more_seldom(rate: int) -> None:
    traced = Traced()
    traced.go(LONG_S, rate, steady(rate))
    assert not traced.is_guilty
    assert 5 <= len(traced.holds) <= 10
    assert traced.circulation.proofs == 0


def test_what_does_not_come_again_is_never_held() -> None:
    traced = Traced()
    traced.go(LONG_S, AGAIN_RATE - 1, circle(50_000))
    assert traced.holds == []


def test_a_burst_is_over_before_it_is_held() -> None:
    traced = Traced()
    for _ in range(100):
        traced.go(RUN_S - 1, 50_000, steady(50_000))
        traced.go(3, 0, steady(0))
    assert traced.holds == []


def test_bursts_that_end_while_they_are_held_are_no_proofs_together() -> None:
    traced = Traced()
    for _ in range(20):
        traced.go(RUN_S + 1, 50_000, circle(50_000))
        traced.go(HELD_S, 0, steady(0))
        traced.go(QUIET_S, 0, steady(0))
    assert len(traced.holds) == 20
    assert not traced.is_guilty


@pytest.mark.parametrize("period_s", [5, 7, 30])
def test_bursts_that_a_slow_remote_makes_a_steady_flow_of_are_no_circle(period_s: int) -> None:
    traced = Traced()
    traced.go(LONG_S, 150, in_bursts(period_s, 150 * period_s))
    assert not traced.is_guilty


def test_a_backlog_that_is_sent_late_is_no_circle() -> None:
    traced = Traced()
    traced.go(LONG_S, 100_000, in_bursts(9, 5))
    assert not traced.is_guilty
    traced.go(LONG_S, 100_000, steady(0))
    assert not traced.is_guilty


def test_a_circle_that_begins_where_a_device_says_the_same_is_found_as_soon() -> None:
    traced = Traced()
    traced.go(LONG_S, 200, steady(200))
    assert not traced.is_guilty
    traced.go((PROOFS + 1) * (RUN_S + HELD_S + 2), 5_000, circle(4_800, 200))
    assert traced.is_guilty


def test_who_may_not_hold_waits_for_that_and_for_nothing_else() -> None:
    circulation, again = Circulation(), 0
    for _ in range(100):
        again += AGAIN_RATE
        assert circulation.second(Traffic(again, again, 0), may_hold=False) is Step.GO
    assert circulation.second(Traffic(again + AGAIN_RATE, again, 0), may_hold=True) is Step.HOLD


def test_a_connection_that_was_lost_while_it_was_held_proves_nothing() -> None:
    traced = Traced()
    traced.go(RUN_S + 2, 500, circle(500))
    assert traced.circulation.is_holding
    traced.circulation.interrupted()
    assert not traced.circulation.is_holding
    assert traced.circulation.proofs == 0
