"""When there is a next turn, and when there are no more.

Owns: the one turn that is asked for, and the end. Never: knows what a turn does.

Invariants:
1. However often a turn is asked for, there is one for all that ask. Whoever has read all sockets
   takes it at once where none is on its way, so that nothing waits for the loop to come round.
2. `ended` resolves once: with an error if the broker cannot go on, else when it is asked to stop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

COMPANY_S: Final = 0.01
"""How long acknowledgements wait for company: a crash in the meantime has their messages sent
again, as it would while they were on their way."""


class Schedule:
    """Asks the loop for turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._company: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self.commit_ended = False
        """A commit has ended since the last turn."""
        self.turn: Callable[[], None]

    def soon(self) -> None:
        """There is something to do."""
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._run)

    def at_once(self) -> None:
        """Takes a turn, unless one is on its way. For a callback of the loop: chores that ask for
        turn after turn would have two of them for each reading."""
        if not self._asked:
            self._take()

    def later(self, seconds: float) -> None:
        """There will be something to do. One timer is enough: the turn it brings asks again."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._ring)

    def in_company(self) -> None:
        """There is something to do that nobody waits for: the next turn does it, or one of its own
        after COMPANY_S."""
        if self._company is None:
            self._company = self._loop.call_later(COMPANY_S, self._ring_alone)

    def committed(self) -> None:
        """A commit has ended."""
        self.commit_ended = True
        self.soon()

    def stop(self) -> None:
        """The broker is asked to stop."""
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: Exception) -> None:
        """The broker cannot go on."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _ring_alone(self) -> None:
        self._company = None
        self.soon()

    def _ring(self) -> None:
        self._timer = None
        self.soon()

    def _run(self) -> None:
        self._asked = False
        self._take()

    def _take(self) -> None:
        # After an error nothing may be acknowledged or written.
        if not self.ended.done() or self.ended.exception() is None:
            self.turn()
