"""Which message a delivery is: how a client asks to be told, and how it is told.

Owns: the names of both user properties. Never: knows what tells messages apart.
"""

from typing import Final

from holdfast.protocols.mqtt.packets import Properties

IDENTITY_REQUEST: Final = "holdfast-identity"
"""Of SUBSCRIBE: `on`, and `off`. Whatever else it says is not for us, as any user property that we
do not know."""
IDENTITY: Final = "holdfast-id"
"""Of PUBLISH: the log's epoch, a hyphen, the offset."""

_ANSWERS: Final = {"on": True, "off": False}


def asks_for_identity(properties: Properties) -> bool | None:
    """Whether a SUBSCRIBE asks that deliveries tell which message each is, or that they do so no
    more; `None` if it says nothing of it. The last of several counts."""
    asked = None
    for name, value in properties.get("user_property", ()):
        if name == IDENTITY_REQUEST:
            asked = _ANSWERS.get(value, asked)
    return asked
