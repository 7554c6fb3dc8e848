"""What the machine itself stood still is noted by one who goes ahead of all others."""

import os
import threading
import time
from pathlib import Path

import pytest

from bench.macro import standstill

FOR_S = 0.2


def test_naps_are_noted_while_something_is_measured(tmp_path: Path) -> None:
    began_ns = time.monotonic_ns()
    with standstill.noted(tmp_path) as samples:
        threading.Event().wait(FOR_S)
    if not samples:
        with pytest.raises(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return
    assert all(at > began_ns and longer >= 0 for at, longer in samples)
    # However the machine stands still: naps and what they were longer make up the time.
    assert sum(standstill.NAP_S + longer / 1e9 for _, longer in samples) > FOR_S / 2
    assert standstill.p99_us(samples) <= max(longer for _, longer in samples) / 1_000


def test_a_machine_that_stops_for_a_hundredth_of_the_time_shows_in_p99() -> None:
    samples = [(at, 10_000_000 if at % 50 == 0 else 0) for at in range(1_000)]
    assert standstill.p99_us(samples) == 10_000
