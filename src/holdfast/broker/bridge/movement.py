"""Whether anything moves on the connection of a bridge.

Owns: what counts as movement: an answer of the remote, and bytes of what it has to answer next
that its system takes. Never: asks for the time, or ends a connection.

A large message on a narrow link is acknowledged only when all of it is there. What is handed over
while nothing is answered, and is no part of that, proves nothing: a remote may take bytes for ever
and answer none of them.
"""

from typing import NamedTuple

from holdfast.broker.sockets.taken import Taken


class Seen(NamedTuple):
    """A connection at one moment."""

    answers: tuple[int, ...]
    """Differs from before if the remote has answered something."""
    is_waiting: bool
    """The remote has something to answer."""
    bytes: Taken


class Movement:
    """Of one connection."""

    def __init__(self, now_us: int) -> None:
        self.at_us = now_us
        """When something moved last."""
        self.taken_at_us = now_us
        """When bytes of what it has to answer did."""
        self._before = Seen((), is_waiting=False, bytes=Taken(0, 0))
        self._awaited = 0
        """So many bytes have to be taken before the next answer."""
        self._is_given = False

    def answered(self, now_us: int) -> None:
        """The remote has answered something that `Seen` does not tell of."""
        self.at_us = now_us
        self._is_given = True

    def given(self) -> None:
        """What waits for an answer may be sent from now on."""
        self._is_given = True

    def saw(self, seen: Seen, now_us: int) -> None:
        """It is so now."""
        before, self._before = self._before, seen
        is_answered = seen.answers != before.answers or not seen.is_waiting
        if is_answered or self._is_given or not before.is_waiting:
            self._awaited, self._is_given = sum(seen.bytes), False
        if seen.is_waiting and min(seen.bytes.taken, self._awaited) > before.bytes.taken:
            self.at_us = self.taken_at_us = now_us
        if is_answered:
            self.at_us = now_us
