"""What queues and groups need to know of a session, whichever protocol it is one of."""

from typing import Protocol


class QueueOwner(Protocol):
    """Whose own queue it is: a session, as far as its queue is concerned."""

    @property
    def party(self) -> int:
        """The number under which the log knows it."""

    @property
    def created_at_offset(self) -> int:
        """Where its queue begins to read as long as it has no delivery state."""

    @property
    def expires_at_us(self) -> int | None:
        """When it is gone; `None` while that is not settled."""


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
