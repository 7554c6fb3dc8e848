"""Cursors as they are seen from outside."""

from holdfast.broker.delivery.cursors import Cursors
from holdfast.core.cursor import CursorSeen


class CursorsState:
    """Looks at one cursor at a time."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors

    def names(self) -> list[str]:
        """All cursors by name."""
        return self._cursors.names()

    def of(self, name: str) -> CursorSeen | None:
        """One cursor, if it is there."""
        return self._cursors.find(name)
