"""The wall clock of a simulated machine: it drifts, and somebody sets it.

Owns: the difference between the loop's time and what the machine believes.
Never: reads the real clock.

Invariants:
1. Timers follow the loop's time, which is monotonic; only the wall clock jumps.
"""

from contextvars import Context

from holdfast.testing.loop import VirtualLoop

FIRST_NOW_US = 1_700_000_000_000_000
"""The wall clock's reading when a run begins."""

STEP_SECONDS_MAXIMUM = 30.0


class SimulatedClock:
    """A wall clock in microseconds since the epoch."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._set_by_us = 0
        if loop.hardships.clock_step_after_s:
            self._plan_step()

    def now_us(self) -> int:
        """What the machine believes; may run backwards."""
        drift_us = self._loop.time_us * self._loop.hardships.clock_drift_ppm // 1_000_000
        return FIRST_NOW_US + self._loop.time_us + drift_us + self._set_by_us

    def step(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._loop.note(f"clock stepped by {seconds:.3f} s")
        self._set_by_us += round(seconds * 1e6)

    def _plan_step(self) -> None:
        random = self._loop.random
        after_s = random.expovariate(1 / self._loop.hardships.clock_step_after_s)
        self._loop.call_later(after_s, self._step_by_chance, context=Context())

    def _step_by_chance(self) -> None:
        if self._loop.network.faults:
            self.step(self._loop.random.uniform(-STEP_SECONDS_MAXIMUM, STEP_SECONDS_MAXIMUM))
            self._plan_step()
