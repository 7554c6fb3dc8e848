"""Who is let in, and what keeps one client, or one guesser, from being a burden to the others."""

from dataclasses import dataclass

from holdfast.core.settings import boolean, duration, integer, setting, size
from holdfast.core.units import GIB, KIB


@dataclass(frozen=True, kw_only=True)
class AccessSection:
    """The tables `access` and `limits`."""

    anonymous: bool = setting(
        "access.anonymous",
        boolean(),
        False,
        """The explicit word that clients without credentials are wanted. Without it they are taken
        on loopback alone, and only while no credentials are set up.""",
    )
    login_failures_maximum: int = setting(
        "access.login_failures_maximum",
        integer(0, 1_000_000),
        10,
        """Failed logins of one address after which it is not looked at for access.login_ban_s, and
        of one user after which it is looked at once in access.login_delay_s. Who types a password
        wrong stays below; who guesses does not. 0: never.""",
        reloadable=True,
    )
    login_ban_s: int = setting(
        "access.login_ban_s",
        duration(1, 86_400),
        "1m",
        """How long an address is banned, and how long failures are counted together: ten guesses a
        minute find no password, and a device that was given the right one need not wait long.""",
        reloadable=True,
    )
    login_delay_s: int = setting(
        "access.login_delay_s",
        duration(0, 5),
        "1s",
        """How long the answer to a failed login waits. Less than a device notices among its
        retries, and more than guessing can bear.""",
        reloadable=True,
    )
    connections_maximum: int = setting(
        "limits.connections_maximum",
        integer(1, 1_000_000),
        100_000,
        "Connections at once; further ones are refused and counted.",
        reloadable=True,
    )
    connections_per_address_maximum: int = setting(
        "limits.connections_per_address_maximum",
        integer(0, 1_000_000),
        0,
        """Connections at once from one IP address; 0: no limit of their own, because a whole fleet
        may stand behind one router.""",
    )
    connections_per_second: int = setting(
        "limits.connections_per_second",
        integer(0, 1_000_000),
        0,
        """CONNECTs that are taken in one second; more are refused with 0x9F. 0: without limit, for
        a fleet should be back quickly.""",
        reloadable=True,
    )
    client_messages_per_second: int = setting(
        "limits.client_messages_per_second",
        integer(0, 2**32 - 1),
        0,
        """Messages that one client may send in one second; who sends more is disconnected with
        0x96, and read no faster where it speaks Pulsar. A credential may say otherwise. 0: without
        limit.""",
        reloadable=True,
    )
    client_bytes_per_second: int = setting(
        "limits.client_bytes_per_second",
        size(0, 2**32 - 1),
        0,
        """Bytes that one client may send in one second, at least one packet of
        mqtt.maximum_packet_size_bytes; as limits.client_messages_per_second otherwise.""",
        reloadable=True,
    )
    broker_messages_per_second: int = setting(
        "limits.broker_messages_per_second",
        integer(0, 2**32 - 1),
        0,
        """Messages that are read in one second from all clients together; what comes faster waits
        in their sockets. 0: without limit.""",
        reloadable=True,
    )
    broker_bytes_per_second: int = setting(
        "limits.broker_bytes_per_second",
        size(0, 2**32 - 1),
        0,
        "Bytes that are read in one second, as limits.broker_messages_per_second.",
        reloadable=True,
    )
    sessions_maximum: int = setting(
        "limits.sessions_maximum",
        integer(1, 100_000_000),
        1_000_000,
        """Sessions that are kept, connected or not; a client that would add one is refused with
        0x97. Each costs about half a kilobyte of disk, for as long as it is kept.""",
        reloadable=True,
    )
    slow_reader_messages_maximum: int = setting(
        "limits.slow_reader_messages_maximum",
        integer(1, 1_000_000),
        10_000,
        """Messages that the reader of a session that is not kept may lag behind; older ones are
        skipped and counted, so that a slow reader costs bounded memory.""",
        reloadable=True,
    )
    write_buffer_high_bytes: int = setting(
        "limits.write_buffer_high_bytes",
        size(1 * KIB, 1 * GIB),
        "1280KiB",
        """Unsent bytes of one client above which it is given nothing more, from its own queue or
        from groups.""",
        aliases=("NETTY_WRITE_BUFFER_HIGH_WATER_MARK",),
        reloadable=True,
    )
    write_buffer_low_bytes: int = setting(
        "limits.write_buffer_low_bytes",
        size(0, 1 * GIB),
        "640KiB",
        "Unsent bytes of that client below which it is given more again.",
        aliases=("NETTY_WRITE_BUFFER_LOW_WATER_MARK",),
        reloadable=True,
    )
