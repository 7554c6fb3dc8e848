"""Whether what a bridge carries comes back to it, where no hops are counted.

Owns: the rule. Never: asks for time, or holds anything; whoever calls it once a second does.

Contents that come again and again may go round in a circle, or be a device that says the same each
time. What tells them apart is what happens while the bridge holds its messages for some seconds:
in a circle nothing comes any more, and a device goes on.

Invariants:
1. Messages are held only after contents have come again at AGAIN_RATE in each of RUN_S seconds.
2. A circle is proven PROOFS times, each time with the messages coming again in between: a burst
   that happens to end just then does not come again.
3. It is no proof unless messages came in each part of the time before: what comes in bursts, or is
   only sent late, is left alone.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Final

AGAIN_RATE: Final = 100
"""Messages a second that have been there before. A circle with fewer does little harm, and has more
with each message that gets into it."""
RUN_S: Final = 10
"""So long contents come again before messages are held: most bursts are over by then."""
EMPTIED_S: Final = 2
"""So long a circle has to bring back what is in it when messages are held."""
WINDOW_S: Final = 2
"""Parts of the time before, and what follows EMPTIED_S, are this long."""
PROOFS: Final = 3
RETURNS_SHARE: Final = 0.5
"""Of what came before: if less comes while messages are held, the rest had been sent from here."""
QUIET_S: Final = 60
"""After so long without a content that comes again, earlier proofs count no more."""
RUN_MAXIMUM_S: Final = 3_600
"""The run doubles each time that nothing is found, up to this: a device that says the same is held
up for some seconds in an hour."""


class Step(Enum):
    """What is to be done with the bridge's messages."""

    GO = auto()
    HOLD = auto()
    JUDGE = auto()
    """They have been held for long enough."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a bridge has had, at one moment."""

    again: int
    """Messages that it has sent with a content that it had sent lately."""
    passing: int
    """Messages of QoS 0 that have come to it."""
    end_offset: int
    """Below it are those of QoS 1 and 2 that have come."""


Window = tuple[Traffic, Traffic]


class Circulation:
    """What is known of one bridge."""

    def __init__(self) -> None:
        self.proofs = 0
        """Times that nothing came while messages were held."""
        self._last: deque[Traffic] = deque(maxlen=RUN_S + 1)
        self._held: list[Traffic] = []
        self._run_s = 0
        self._wanted_s = RUN_S
        self._quiet_s = 0
        self._innocent_rate = 0

    @property
    def is_holding(self) -> bool:
        """Messages are to be held."""
        return bool(self._held)

    def second(self, seen: Traffic, *, may_hold: bool) -> Step:
        """One second more in which the bridge was connected."""
        if self._held:
            self._held.append(seen)
            return Step.JUDGE if len(self._held) > EMPTIED_S + WINDOW_S else Step.HOLD
        self._note(seen)
        if self._run_s >= RUN_S and self._least() >= 2 * self._innocent_rate:
            self._wanted_s = RUN_S
        if self._run_s < self._wanted_s or not may_hold:
            return Step.GO
        self._held = [seen]
        return Step.HOLD

    def windows(self) -> tuple[list[Window], Window]:
        """Of which it has to be known how many messages came: those before, and that in which they
        were held."""
        last = list(self._last)
        steps = range(0, RUN_S, WINDOW_S)
        return [(last[at], last[at + WINDOW_S]) for at in steps], (
            self._held[-1 - WINDOW_S],
            self._held[-1],
        )

    def judge(self, before: Sequence[int], held: int) -> bool:
        """How many messages came in each window; true if they go round in a circle."""
        least = self._least()
        self.interrupted()
        if min(before) < AGAIN_RATE * WINDOW_S or held >= RETURNS_SHARE * min(before):
            self.proofs = 0
            self._innocent_rate = least
            self._wanted_s = min(2 * self._wanted_s, RUN_MAXIMUM_S)
            return False
        self.proofs += 1
        return self.proofs >= PROOFS

    def interrupted(self) -> None:
        """Messages are held no more, and what came before says nothing about what comes now."""
        self._held.clear()
        self._last.clear()
        self._run_s = 0

    def _note(self, seen: Traffic) -> None:
        if self._last and seen.again - self._last[-1].again >= AGAIN_RATE:
            self._run_s += 1
            self._quiet_s = 0
        else:
            self._last.clear()
            self._run_s = 0
            self._quiet_s += 1
            if self._quiet_s >= QUIET_S:
                self.proofs = 0
        self._last.append(seen)

    def _least(self) -> int:
        """Messages that came again, in the second of the last RUN_S that had the fewest."""
        return min(after.again - before.again for before, after in pairwise(self._last))
