"""The numbers by which a broker says what is wrong, and what the official clients do on each.

Owns: the numbers and the clients' reactions. Never: decides which is said (refusals do).
"""

from enum import IntEnum, StrEnum
from typing import Final


class ServerError(IntEnum):
    """The error codes of the protocol."""

    UNKNOWN_ERROR = 0
    METADATA_ERROR = 1
    PERSISTENCE_ERROR = 2
    AUTHENTICATION_ERROR = 3
    AUTHORIZATION_ERROR = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM_ERROR = 9
    UNSUPPORTED_VERSION_ERROR = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED_ERROR = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN_ERROR = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED_ERROR = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25

    @property
    def wire_name(self) -> str:
        """The name as the protocol's own pages and the clients' logs spell it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Reaction(StrEnum):
    """What the official clients do when they are told an error."""

    GIVE_UP = "give up"
    """The call fails at once, with the error."""
    REPEAT = "repeat for 30 s"
    """The call is made again and again, without a word, until the operation timeout."""
    DROP = "drop the message"
    """The message is given up, with the error, and the producer goes on."""
    RECONNECT = "end the connection"
    """The client closes the connection, connects anew and does its work again."""


REPEATED: Final = frozenset(
    {
        ServerError.UNKNOWN_ERROR,
        ServerError.METADATA_ERROR,
        ServerError.PERSISTENCE_ERROR,
        ServerError.SERVICE_NOT_READY,
        ServerError.SUBSCRIPTION_NOT_FOUND,
        ServerError.CONSUMER_NOT_FOUND,
        ServerError.INVALID_TOPIC_NAME,
        ServerError.UNSUPPORTED_VERSION_ERROR,
    }
)
"""What the clients repeat when a producer is made or a subscription. A mistake that is answered by
one of these looks to its user like a broker that hangs."""


def usual_reaction(error: ServerError) -> Reaction:
    """What follows from an error in answer to PRODUCER, SUBSCRIBE or a look-up."""
    return Reaction.REPEAT if error in REPEATED else Reaction.GIVE_UP
