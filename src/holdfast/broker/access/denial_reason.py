"""Why somebody is not let in: each protocol says it in its own words."""

from enum import Enum


class DenialReason(Enum):
    """The reason, with the name under which it is counted."""

    WRONG_CREDENTIALS = "wrong_credentials"
    NOT_AUTHORIZED = "not_authorized"
    BANNED = "banned"
    """The address has failed too often."""
    BUSY = "busy"
    """Not looked at now; the next try may be."""
