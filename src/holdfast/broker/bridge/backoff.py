"""How long a bridge waits before it tries to connect again.

Owns: the waits. Never: asks for randomness or time; both are passed in.
"""

from collections.abc import Callable
from typing import Final

FIRST_WAIT_S: Final = 1.0
"""After a connection that was lost, and after each success (S1.51, S1.55)."""
WAIT_MAXIMUM_S: Final = 120.0
"""Attempts go on for ever at this (S1.53)."""
DOUBLINGS_MAXIMUM: Final = 7
"""One second becomes more than the maximum by so many."""
LASTING_S: Final = 10
"""A connection that has held for so long is a success, whatever ends it. What ends one earlier, of
which nothing came, may be said in the next one again, each second for ever."""
JITTER_SHARE: Final = 0.25
"""Added to each wait, so that many who lose one remote do not come back at one moment (S1.54)."""

SHARE_BYTES: Final = 4
"""Random bytes that one share takes."""


def draw_share(entropy: Callable[[int], bytes]) -> float:
    """A random number from 0 to 1."""
    return int.from_bytes(entropy(SHARE_BYTES)) / (1 << (8 * SHARE_BYTES))


class Backoff:
    """Waits of one bridge: 1, 2, 4 ... 120 seconds, each with up to a quarter on top."""

    def __init__(self) -> None:
        self.failures = 0
        """Attempts, and connections that got nowhere, since the last success."""

    def next_wait_s(self, share: float) -> float:
        """After one failure more; `share` is a random number from 0 to 1."""
        wait_s = WAIT_MAXIMUM_S
        # Doubling without a bound would overflow after a week without the remote.
        if self.failures < DOUBLINGS_MAXIMUM:
            wait_s = min(FIRST_WAIT_S * 2**self.failures, WAIT_MAXIMUM_S)
        self.failures += 1
        return wait_s * (1 + JITTER_SHARE * share)

    def refused(self, share: float) -> float:
        """The remote has said no, and will say so again: the longest wait at once."""
        self.failures += 1
        return WAIT_MAXIMUM_S * (1 + JITTER_SHARE * share)

    def succeeded(self) -> None:
        """The next wait is the first one."""
        self.failures = 0
