"""What the machine itself stood still is noted by one who goes ahead of all others."""

import os
import threading
import time
from pathlib import Path

import pytest

from bench.macro import standstill

FOR_S = 0.2


def test_each_moment_is_noted_while_something_is_measured(tmp_path: Path) -> None:
    began_ns = time.monotonic_ns()
    with standstill.noted(tmp_path) as samples:
        threading.Event().wait(FOR_S)
    if not samples:
        with pytest.raises(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return
    dues = [due for due, _ in samples]
    assert dues == list(range(dues[0], dues[-1] + 1, standstill.EVERY_NS)), "each millisecond once"
    assert dues[0] > began_ns
    assert dues[-1] - dues[0] > FOR_S * 1e9 / 2
    assert all(late >= 0 for _, late in samples)


def test_a_machine_that_stops_for_a_hundredth_of_the_time_shows_in_p99() -> None:
    samples = [(at, 10_000_000 if at % 50 == 0 else 0) for at in range(1_000)]
    assert standstill.p99_us(samples) == 10_000
