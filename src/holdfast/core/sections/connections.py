"""What one connection is granted."""

from dataclasses import dataclass

from holdfast.core.settings import duration, integer, setting, size
from holdfast.core.units import KIB, MIB


@dataclass(frozen=True, kw_only=True)
class ConnectionsSection:
    """What one connection is granted."""

    connections_maximum: int = setting(
        integer(1, 1_000_000),
        100_000,
        "Connections at once; further ones are refused and counted.",
        reloadable=True,
    )
    connections_per_address_maximum: int = setting(
        integer(0, 1_000_000),
        0,
        """Connections at once from one IP address; 0: no limit of their own, because a whole fleet
        may stand behind one router.""",
    )
    keep_alive_maximum_s: int = setting(
        duration(1, 65_535),
        "65535s",
        """The longest Keep Alive that is granted. The protocol's own maximum; a client that sends 0
        is watched by TCP alone.""",
        reloadable=True,
    )
    receive_maximum: int = setting(
        integer(1, 65_535),
        1_000,
        """QoS 1 and 2 messages that one publisher may have unanswered. Enough to cover a commit of
        a millisecond at a million messages a second; each identifier in flight costs memory.""",
        reloadable=True,
    )
    maximum_packet_size_bytes: int = setting(
        size(1 * KIB, 256 * MIB - 1),
        "1MiB",
        """The largest packet that is taken. Devices send kilobytes; one packet this large still
        passes in one turn of the loop. The protocol allows 256 MiB.""",
    )
    topic_alias_maximum: int = setting(
        integer(0, 65_535),
        64,
        """Topic aliases that one publisher may set. A device publishes on a handful of topics; each
        alias holds a topic name in memory.""",
        reloadable=True,
    )
