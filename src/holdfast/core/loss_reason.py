"""Why a message will not be delivered to someone.

The texts are in the log's records and in what operators read (docs/operating/losses.md), so none of
them changes; what no broker writes any more stays, for older logs have it.
"""

from enum import StrEnum


class LossReason(StrEnum):
    """The reason, as the loss ledger has it."""

    OVERFLOW = "overflow"
    """A queue at rest had more messages than it may."""
    TTL = "ttl"
    """It had waited for longer than it may."""
    RETENTION = "retention"
    """The log had removed it, or its record was damaged."""
    EXPIRED = "expired"
    """Its own time was over."""
    RETRIES_USED_UP = "retries_used_up"
    """It was acknowledged in no round of its pack."""
    SKIPPED = "skipped"
    """The same, with a strategy that has no second round."""
    REFUSED = "refused"
    """Its receiver refused it."""
    TOO_LARGE = "too_large"
    """It was larger than its receiver takes."""
    DENIED = "denied"
    """The rules no longer let its receiver have it."""
    SLOW_READER = "slow_reader"
    """Nobody had been promised it, and its receiver read too slowly."""
    LOOP = "loop"
    """Bridges had carried it as often as they may."""
    TOPIC = "topic"
    """A bridge could not make the topic of it that it is to have at the other end."""
    CLOSED = "closed"
    """It was in an entry that cannot be opened: encrypted, or part of a larger message."""
    SESSION_ENDED = "session_ended"
    """It was left when the session ended."""
