"""Finds bridges whose messages come back to them, where no hops are counted, and ends their work.

Owns: which bridge holds its messages to see whether any come: one at a time, so that what is missed
has been held there and nowhere else in this broker. Never: decides by what a circle is known;
`circulation` does.

Flow: sweep -> here -> Circulation -> link.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.broker.bridge.circulation import Circulation, Step, Traffic, Window
from holdfast.broker.bridge.link import Link, State
from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.store.questions import Inquiry
from holdfast.kernel import Log

HOLD_SHARE: Final = 0.2
"""Of the seconds in which messages could be held: brokers of one circle do not hold theirs at the
same moments, so that neither is found guilty of what the other holds."""


class LoopSearch:
    """Looks at all bridges once a second."""

    def __init__(
        self, log: Log, chores: Chores, share: Callable[[], float], now_us: Callable[[], int]
    ) -> None:
        """`share` is a random number from 0 to 1."""
        self._log = log
        self._chores = chores
        self._share = share
        self._now_us = now_us
        self._suspect: Link | None = None
        self._is_judging = False

    def sweep(self, links: Iterable[Link]) -> None:
        """A second has passed."""
        if self._is_judging:
            return
        if self._suspect is not None and not self._suspect.is_held:
            self._suspect = None
        for link in links:
            circulation = link.circulation
            if circulation is None:
                continue
            if link.state is not State.CONNECTED or (circulation.is_holding and not link.is_held):
                circulation.interrupted()
            else:
                self._look(link, circulation)

    def _look(self, link: Link, circulation: Circulation) -> None:
        carried = link.queue.carried()
        seen = Traffic(carried.again, carried.passing, self._log.end_offset())
        may_hold = self._suspect is None and self._share() < HOLD_SHARE
        step = circulation.second(seen, may_hold=may_hold)
        if step is Step.HOLD and self._suspect is None:
            self._suspect = link
            link.hold(self._now_us())
        elif step is Step.JUDGE:
            self._is_judging = True
            before, held = circulation.windows()
            pieces = self._came(link, [*before, held])
            self._chores.begin(pieces, lambda came: self._judge(link, circulation, came))

    def _came(self, link: Link, windows: Sequence[Window]) -> Pieces[list[int]]:
        """How many messages came to the bridge in each window."""
        inquiry, found = Inquiry(self._log), []
        for begin, end in windows:
            stored = yield from link.queue.stored(begin.end_offset, end.end_offset, inquiry)
            found.append(stored + end.passing - begin.passing)
        return found

    def _judge(self, link: Link, circulation: Circulation, came: list[int]) -> None:
        self._is_judging, self._suspect = False, None
        if not link.is_held:
            circulation.interrupted()
        elif circulation.judge(came[:-1], came[-1]):
            before, held = min(came[:-1]), came[-1]
            link.looped(
                f"at least {before} in two seconds, {held} while it held its own", self._now_us()
            )
        else:
            link.go_on()
