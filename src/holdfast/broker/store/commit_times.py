"""How long commits take, as whoever waits for the disk sees it.

Owns: a histogram. Never: commits.
"""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""From a disk with a battery behind it to one that stands still."""


class CommitTimes:
    """From the moment somebody waits for the disk until the commit that was on its way ended."""

    def __init__(self) -> None:
        self._asked_at_us: int | None = None
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """How many took as long as each bound at most, and longer than the one before it."""
        self.sum_s = 0.0
        self.last_s = 0.0

    def asked(self, now_us: int) -> None:
        """Somebody waits for the disk."""
        if self._asked_at_us is None:
            self._asked_at_us = now_us

    def ended(self, now_us: int) -> None:
        """A commit has ended; whoever still waits does so for the next one."""
        if self._asked_at_us is None:
            return
        self.last_s = (now_us - self._asked_at_us) / 1_000_000
        self._asked_at_us = None
        self.sum_s += self.last_s
        self.counts[bisect_left(BOUNDS_S, self.last_s)] += 1
