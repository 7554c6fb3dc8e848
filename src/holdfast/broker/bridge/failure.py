"""Why an attempt to connect with a remote failed, or a connection with it ended."""

from enum import StrEnum


class Failure(StrEnum):
    """Why an attempt failed, or a connection was lost."""

    UNREACHABLE = "unreachable"
    """No address, nobody there, or no answer from there."""
    HANDSHAKE = "handshake"
    """TLS or WebSocket: such as a certificate that nobody vouches for."""
    CREDENTIALS = "credentials"
    """The file that the password stands in could not be read, or is too large for one."""
    REFUSED = "refused"
    """CONNACK said no."""
    SILENT = "silent"
    """The remote did not answer in time: neither CONNECT nor a sign of life."""
    STALLED = "stalled"
    """It acknowledged nothing any more."""
    PROTOCOL = "protocol"
    """It broke the protocol."""
    DISCONNECTED = "disconnected"
    """It said DISCONNECT."""
    CLOSED = "closed"
    """The connection ended without a word."""
    LOOP = "loop"
    """What was sent on it came back."""
    NO_ROOM = "no_room"
    """The disk here has no room for what came on it."""
    ALONE = "alone"
    """One message had it to itself, and that has been answered: the rest goes on the next one."""
