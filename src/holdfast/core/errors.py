"""What is the world's fault, and whether to try again.

Owns: errors of disk, network and operators. What a peer does wrong is no exception: whoever finds
it hands back a value that says what the peer is told. Our own faults are assertions: the process
stops and recovers. Never: a decision made on a message's text; what matters is in the type.

Invariant: whether an `OperatingError` is worth another try is a property of its class.
"""

from typing import ClassVar


class OperatingError(Exception):
    """The world's fault: disk, network, quota, or an operator's request. One clear sentence."""

    retriable: ClassVar[bool]


class ConfigurationError(OperatingError):
    """A setting is unknown, malformed, out of range or contradicts another; nothing was started."""

    retriable = False


class DirectoryHeldError(OperatingError):
    """Another process holds the data directory. It becomes free when that process ends."""

    retriable = True


class DirectoryError(OperatingError):
    """The data directory cannot be used: no permission, not a directory, or of a newer version."""

    retriable = False


class BackupError(OperatingError):
    """A copy of a log could not be made, or is not what it was made from."""

    retriable = False


class BrokerAbsentError(OperatingError):
    """No broker runs where a command was to reach one. It may be started."""

    retriable = True


class BrokerRefusedError(OperatingError):
    """A running broker refused a request; it said why."""

    retriable = False

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        """The status of HTTP."""


class BrokerBusyError(OperatingError):
    """A running broker cannot answer now: its disk stalls, or too much is asked for at once."""

    retriable = True


class ListenError(OperatingError):
    """An address could not be listened on: the port is in use, or the address is not ours."""

    retriable = True
