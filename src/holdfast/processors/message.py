"""What a processor is handed: one message, as it came."""

from typing import NamedTuple


class Message(NamedTuple):
    """A PUBLISH that has not been acknowledged yet. A tuple, since each message is made one."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    redelivered: bool
    """The broker says that it has sent it before (DUP)."""
    user_properties: tuple[tuple[str, str], ...]
    """In their order, repeated names kept."""
    identity: str | None
    """What the broker calls it, the same each time that it comes: the log's epoch, a hyphen, the
    offset (S3.66). None where the broker gives no identity."""
    received_at_us: int
    """When it came here, in microseconds since 1970."""
