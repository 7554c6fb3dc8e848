"""What became of a login."""

from enum import StrEnum


class LoginOutcome(StrEnum):
    """The outcome, by the name under which it is counted."""

    REMEMBERED = "remembered"
    """The password had been right before, and was not hashed again."""
    FAILED = "failed"
    DISABLED = "disabled"
    WITH_ANOTHER_IDENTIFIER = "with_another_identifier"
    WITHOUT_CREDENTIAL = "without_credential"
    NOT_LOOKED_AT_BANNED = "not_looked_at_banned"
    """It came from a banned address."""
    NOT_LOOKED_AT_BUSY = "not_looked_at_busy"
    """Its user is delayed."""
    NOT_LOOKED_AT_TOO_MANY = "not_looked_at_too_many"
    """Too many were to be hashed at once."""
