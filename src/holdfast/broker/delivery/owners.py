"""What groups need to know of a session, whichever protocol it is one of."""

from typing import Protocol


class Member(Protocol):
    """A session, as far as the groups that it subscribes to are concerned."""

    @property
    def client_identifier(self) -> str:
        """Its client's name."""

    @property
    def party(self) -> int:
        """The number under which the log knows it."""

    @property
    def application(self) -> bool:
        """True if it is delivered to as an APPLICATION is."""
