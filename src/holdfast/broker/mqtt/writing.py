"""How many messages make one write to a client: as its type is set to.

Owns: that choice. Never: cuts or writes a byte.

What one write is, depends on what lies below: a frame of its own on a WebSocket, a record of its
own in TLS, and on plain TCP bytes that are handed to the transport by themselves.
"""

from typing import Final

from holdfast.broker.mqtt.session import Session
from holdfast.core.config import Config

ALL_THERE_IS: Final = 0
"""No limit: everything that is ready leaves in one write."""


def messages_per_write(config: Config, session: Session) -> int:
    """The most messages of one write to this session's client; what is left at the end of a turn
    leaves with it."""
    if session.client_type == "APPLICATION":
        return 1 if config.application_write_and_flush else config.application_flush_messages
    return ALL_THERE_IS if config.device_write_and_flush else config.device_flush_messages
