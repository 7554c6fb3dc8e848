"""Work beside the loop that the log does without for a while: where the disk has no room for it, it
is tried again later.

Owns: that one piece of such work is on its way at a time, and when it may begin. Never: does it.
"""

import logging
from typing import Final

from holdfast.broker.chores import Chores, Pieces, named_as
from holdfast.kernel import DiskError

log = logging.getLogger(__name__)

RETRY_US: Final = 60_000_000
"""How long nothing is begun after the disk had no room."""


class WhereThereIsRoom:
    """Begins one kind of such work."""

    def __init__(self, without_room: str) -> None:
        """`without_room` is what an operator is told then."""
        self._without_room = without_room
        self._is_under_way = False
        self._not_before_us = 0

    def may_begin(self, now_us: int) -> bool:
        """True if none is on its way and there may be room."""
        return not self._is_under_way and now_us >= self._not_before_us

    def begin(self, chores: Chores, pieces: Pieces[None], now_us: int) -> None:
        """Begins it, from the next turn on. What goes wrong besides room is raised there."""
        self._is_under_way = True
        chores.begin(named_as(pieces, self._done(pieces, now_us)), lambda _: None)

    def _done(self, pieces: Pieces[None], now_us: int) -> Pieces[None]:
        try:
            yield from pieces
        except DiskError as error:
            if not error.full:
                raise
            self._not_before_us = now_us + RETRY_US
            log.warning("%s: the disk has no room for one", self._without_room)
        finally:
            self._is_under_way = False
