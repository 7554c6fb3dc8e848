"""How long the steps of the loop are: what it does at one go, while everybody else waits.

Owns: the budget, a histogram for each kind of step, the longest of each, and which stage it was
that took longer. Never: does anything about it; it tells, in the log and in the metrics.

Invariants:
1. A kind and a stage are words of this program, so the number of series is bounded.
2. A step within its budget costs two readings of the clock and a few additions.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, Literal, TypeVar

from holdfast.broker.log_lines import FrequentEvent
from holdfast.core.limits import STEP_BUDGET_MS

T = TypeVar("T")

log = logging.getLogger(__name__)
OVER_BUDGET: Final = FrequentEvent(log, "step over its budget")

Kind = Literal["turn", "read", "piece", "sweep", "answer"]
KINDS: Final[tuple[Kind, ...]] = ("turn", "read", "piece", "sweep", "answer")

BUDGET_NS: Final = STEP_BUDGET_MS * 1_000_000
BOUNDS_S: Final = (0.0001, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""From a turn with a few messages to a loop that stands still."""
_BOUNDS_NS: Final = tuple(int(bound * 1_000_000_000) for bound in BOUNDS_S)
LATELY_S: Final = 60
"""How far back the longest step of late may lie: a chart that is drawn every minute misses none."""


class Lengths:
    """How long the steps of one kind were."""

    __slots__ = ("_seconds", "counts", "longest_ns", "second_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """How many took as long as each bound at most, and longer than the one before it."""
        self.sum_ns = 0
        self.longest_ns = 0
        """Since the start."""
        self.second_ns = 0
        """The longest since the last `next_second`."""
        self._seconds = [0] * LATELY_S

    def add(self, took_ns: int) -> None:
        """One more has ended."""
        self.counts[bisect_left(_BOUNDS_NS, took_ns)] += 1
        self.sum_ns += took_ns
        if took_ns > self.second_ns:
            self.second_ns = took_ns
            self.longest_ns = max(self.longest_ns, took_ns)

    def next_second(self, number: int) -> None:
        """Begins the second of this number."""
        self._seconds[number % LATELY_S] = self.second_ns
        self.second_ns = 0

    @property
    def lately_ns(self) -> int:
        """The longest of the last LATELY_S seconds."""
        return max(self.second_ns, *self._seconds)


class Steps:
    """All kinds of steps of one broker's loop."""

    def __init__(self, ticks_ns: Callable[[], int], now_us: Callable[[], int]) -> None:
        """`ticks_ns` measures, `now_us` says when a line may be written."""
        self.ticks_ns = ticks_ns
        self._now_us = now_us
        self._seconds = 0
        self.lengths: dict[Kind, Lengths] = {kind: Lengths() for kind in KINDS}
        self.over_budget: Counter[tuple[Kind, str]] = Counter()
        """Steps that took longer than the budget, by kind and the stage that took most of it."""

    def ended(self, kind: Kind, stage: str, took_ns: int) -> None:
        """A step has ended; it was this, or this took most of it."""
        self.lengths[kind].add(took_ns)
        if took_ns > BUDGET_NS:
            self.tell(kind, stage, took_ns, took_ns)

    def tell(self, kind: Kind, stage: str, stage_ns: int, took_ns: int) -> None:
        """A step was over its budget, and so long of it in this stage."""
        self.over_budget[kind, stage] += 1
        if OVER_BUDGET.is_due(self._now_us()):
            fields = {
                "step": kind,
                "ms": took_ns // 1_000_000,
                "stage": stage,
                "stage_ms": stage_ns // 1_000_000,
            }
            OVER_BUDGET.write(fields)

    def next_second(self) -> None:
        """Once a second: what was long a minute ago is forgotten."""
        self._seconds += 1
        for lengths in self.lengths.values():
            lengths.next_second(self._seconds)

    def answering(self, name: str, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """The coroutine, with each step from one wait to the next measured under this name."""
        return _Measured(self, name, work)


class _Measured(Awaitable[T]):
    """Steps through a coroutine as whoever awaits it would."""

    def __init__(self, steps: Steps, name: str, work: Coroutine[Any, Any, T]) -> None:
        self._steps = steps
        self._name = name
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        proceed: Callable[[], Any] = partial(self._work.send, None)
        while True:
            began_ns = self._steps.ticks_ns()
            try:
                waits_for = proceed()
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            finally:
                self._steps.ended("answer", self._name, self._steps.ticks_ns() - began_ns)
            proceed = yield from _resumed(self._work, waits_for)


def _resumed(
    work: Coroutine[Any, Any, Any], waits_for: Any
) -> Generator[Any, Any, Callable[[], Any]]:
    """Hands on what the coroutine waits for; returns how it goes on: with an answer or an error."""
    try:
        answer = yield waits_for
    except BaseException as error:  # noqa: BLE001 - it is the coroutine's to see.
        return partial(work.throw, error)
    return partial(work.send, answer)
