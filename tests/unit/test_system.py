"""The edge to the real world: that it tells what it says it tells."""

import os
import platform
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import system
from tests.scheduling import knows_slices, niceness_and_slice

USUAL_INTERVAL_S = 0.005
"""What Python begins with."""


def test_the_clock_counts_microseconds_since_the_epoch() -> None:
    assert system.now_us() > 1_700_000_000_000_000
    assert system.monotonic_s() <= system.monotonic_s()


def test_entropy_and_seeds_differ_from_call_to_call() -> None:
    assert len(system.entropy(16)) == 16
    assert len({system.entropy(16) for _ in range(8)}) == 8
    assert all(0 <= system.seed() < 2**63 for _ in range(100))


def test_a_disk_is_known_before_the_directory_is_made(tmp_path: Path) -> None:
    planned = tmp_path / "a" / "b"
    assert system.disk_bytes(planned) == system.disk_bytes(tmp_path) > 0
    assert not planned.exists()


def test_the_process_knows_its_own_size() -> None:
    assert 2**20 < system.resident_bytes() < 2**40


def test_a_thread_that_computes_gives_the_interpreter_back_soon() -> None:
    before = sys.getswitchinterval()
    # Another test may have served in this process.
    sys.setswitchinterval(USUAL_INTERVAL_S)
    try:
        system.share_interpreter()
        assert sys.getswitchinterval() < USUAL_INTERVAL_S / 10
    finally:
        sys.setswitchinterval(before)


def test_the_machine_has_a_name_without_its_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "Daves-MacBook.local")
    assert system.machine_name() == "Daves-MacBook"


@pytest.mark.parametrize("nice", [0, 5, 15])
def test_a_thread_that_stands_back_does_so_alone(nice: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def broker_started_so_nice() -> tuple[int, int, int]:
        started = os.nice(nice)
        with ThreadPoolExecutor(1, initializer=system.stand_back) as readers:
            return started, readers.submit(niceness).result(), niceness()

    # A thread cannot become less nice again: it is one that ends with this test.
    with ThreadPoolExecutor(1) as pool:
        started, reader, after = pool.submit(broker_started_so_nice).result()
    assert reader == min(started + system.NICENESS_BESIDE, 19)
    assert after == started


def on_a_thread_of_its_own(*steps: Callable[[], object]) -> list[object]:
    """What each of them answers; a thread keeps what it was told, and ends with the test."""
    with ThreadPoolExecutor(1) as pool:
        return [pool.submit(step).result() for step in steps]


def test_who_stands_back_wants_a_core_for_long_so_that_others_have_it_at_once() -> None:
    if not knows_slices():
        pytest.skip(f"slices are known from Linux 6.12 on, and this is {platform.release()}")
    usual = niceness, _ = niceness_and_slice()
    _, back = on_a_thread_of_its_own(system.stand_back, niceness_and_slice)
    assert back == (min(niceness + system.NICENESS_BESIDE, 19), system.SLICE_BESIDE_NS)
    assert niceness_and_slice() == usual, "a thread was told, and nobody else"


def test_who_was_started_to_run_in_batches_still_does() -> None:
    def batches() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    answers = on_a_thread_of_its_own(batches, system.stand_back, lambda: os.sched_getscheduler(0))
    assert answers[-1] == os.SCHED_BATCH


def test_nothing_is_asked_of_a_machine_whose_numbers_are_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "loongarch64")
    monkeypatch.setattr("ctypes.CDLL", None)
    on_a_thread_of_its_own(system.stand_back)
