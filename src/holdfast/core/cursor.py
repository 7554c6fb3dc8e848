"""A cursor as it is at one moment: where it is, what it keeps, who holds it."""

from dataclasses import dataclass

from holdfast.core.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSeen:
    """One cursor as it is now."""

    name: str
    party: int
    """The number under which the log knows it."""
    reads: tuple[Subscription, ...]
    """What is kept for it."""
    place: int
    """Everything below is released, or lost."""
    made_by: str
    """The user who made it; empty if nobody had to say who they were."""
    holder: str
    """Empty: nobody holds it."""
    held_as: str
    """How the holder calls itself, for people."""
    hold_ends_at_us: int
    """When its hold ends if its holder asks for nothing more."""

    @property
    def selection(self) -> tuple[str, ...]:
        """The topic filters of what it keeps."""
        return tuple(item.topic_filter for item in self.reads)
