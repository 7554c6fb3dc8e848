"""Threads beside the event loop: they stand back, and end for good."""

import ctypes
import os
import sys
import threading
from pathlib import Path

import pytest

from holdfast import system
from holdfast.broker.threads import ThreadsBeside

FREES_FOR_US = 200_000
"""How long a library takes to free what it kept for a thread that ends."""


def keep_what_takes_long_to_free() -> int:
    """The system calls back when the calling thread ends, which Python does not wait for; returns
    the thread's number."""
    library = ctypes.CDLL(None)
    key = ctypes.c_uint()
    assert library.pthread_key_create(ctypes.byref(key), library.usleep) == 0
    assert library.pthread_setspecific(key, ctypes.c_void_p(FREES_FOR_US)) == 0
    return system.thread_number()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process")
def test_no_thread_is_left_when_they_are_shut_down() -> None:
    threads = ThreadsBeside(2, "reader")
    number = threads.submit(keep_what_takes_long_to_free).result()
    listed = Path(f"/proc/self/task/{number}")
    assert listed.exists()
    threads.shutdown()
    assert not listed.exists()


def test_who_does_not_wait_for_them_goes_on_at_once() -> None:
    threads = ThreadsBeside(1, "reader")
    wanted = threading.Event()
    answer = threads.submit(wanted.wait)
    threads.shutdown(wait=False)
    wanted.set()
    assert answer.result()


def test_they_stand_back() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, system.thread_number())

    with ThreadsBeside(1, "reader") as threads:
        assert threads.submit(niceness).result() == min(niceness() + system.NICENESS_BESIDE, 19)


def test_a_thread_that_never_ends_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "GONE_WITHIN_S", 0.01)
    system.wait_threads_gone([system.thread_number()])
