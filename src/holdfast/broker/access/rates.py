"""How many of something there may be in a second.

Owns: the counting. Never: looks at a clock, or refuses.
"""

from holdfast.core.units import SECOND_US


class Rate:
    """At most so many in a second, with as many at once; 0 is without limit."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left_us = per_second * SECOND_US
        """What is left, each worth a second's microseconds so that nothing is rounded."""
        self._at_us: int | None = None

    def take(self, now_us: int) -> bool:
        """True if there is room for one more now."""
        if not self._per_second:
            return True
        if self._at_us is not None:
            gained_us = (now_us - self._at_us) * self._per_second
            self._left_us = min(self._per_second * SECOND_US, self._left_us + gained_us)
        self._at_us = now_us
        if self._left_us < SECOND_US:
            return False
        self._left_us -= SECOND_US
        return True
