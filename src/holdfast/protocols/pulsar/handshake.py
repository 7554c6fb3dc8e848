"""CONNECT in, a decision out: refused, or accepted on these terms.

    opening = plan_handshake(connect)         Opening(user_name=..., password=...) or a Refusal
    write_command(connected(opening, offer))

Owns: the protocol version, the sizes that the client is told, and whom it says that it is. Never:
checks a password; who carries the decision out asks the broker's access for that.

Flow: commands -> here -> access -> CONNECTED.
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.protocols.pulsar.fields import Connect, Connected, FeatureFlags
from holdfast.protocols.pulsar.refusals import Refusal

PROTOCOL_VERSION: Final = 20
"""The newest version that is spoken; a client that is older is answered in its own."""
COMMAND_ROOM_BYTES: Final = 10_240
"""What a frame may have beyond the largest message, for its command and the metadata."""
NOBODY: Final = frozenset({"", "none"})
"""Methods of authentication by which a client does not say who it is."""
BASIC: Final = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What every client is told."""

    server_version: str
    max_message_size_bytes: int

    @property
    def frame_bytes_maximum(self) -> int:
        """The largest frame that is read."""
        return self.max_message_size_bytes + COMMAND_ROOM_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """CONNECT is accepted on these terms, if access agrees."""

    client_version: str
    protocol_version: int
    user_name: str | None = None
    """`None`: the client does not say."""
    password: bytes | None = field(default=None, repr=False)


def plan_handshake(connect: Connect) -> Opening | Refusal:
    """Decide about a CONNECT."""
    version = min(max(connect.protocol_version, 0), PROTOCOL_VERSION)
    opening = Opening(client_version=connect.client_version, protocol_version=version)
    if connect.auth_method_name in NOBODY:
        return opening
    if connect.auth_method_name != BASIC:
        return Refusal.AUTHENTICATION_METHOD_UNKNOWN
    user_name, colon, password = (connect.auth_data or b"").partition(b":")
    if not user_name or not colon:
        return Refusal.AUTHENTICATION_DATA_MALFORMED
    try:
        named = user_name.decode()
    except UnicodeDecodeError:
        return Refusal.AUTHENTICATION_DATA_MALFORMED
    return Opening(
        client_version=connect.client_version,
        protocol_version=version,
        user_name=named,
        password=password,
    )


def connected(opening: Opening, offer: Offer) -> Connected:
    """The command that accepts `opening`. No feature beyond the version is offered, so that clients
    ask for lists of topics instead of waiting to be told, and read entries without more metadata
    than their producers gave them."""
    return Connected(
        server_version=offer.server_version,
        protocol_version=opening.protocol_version,
        max_message_size=offer.max_message_size_bytes,
        feature_flags=FeatureFlags(),
    )
