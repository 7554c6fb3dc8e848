"""Threads that do something for somebody outside, beside the event loop.

Owns: that they leave cores to the loop and to commits, and that they have ended for good once they
are shut down. Never: decides what is done there.
"""

from concurrent.futures import ThreadPoolExecutor

from holdfast import system


class ThreadsBeside(ThreadPoolExecutor):
    """At most `maximum` threads with this name, begun when there is something to do."""

    def __init__(self, maximum: int, name: str) -> None:
        self._numbers: list[int] = []
        super().__init__(maximum, name, initializer=self._begin)

    def _begin(self) -> None:
        self._numbers.append(system.thread_number())
        system.stand_back()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing new is begun; with `wait`, all is done afterwards and no thread is left.

        Python says that a thread has ended while libraries still free there what they kept for it,
        and at the end of a process they free that too, whoever has it: a broker that had stopped
        was aborted now and then ("corrupted size vs. prev_size"), where cores were so short that
        threads which stand back ended last.
        """
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            system.wait_threads_gone(self._numbers)
