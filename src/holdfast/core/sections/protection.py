"""What keeps one client, or one guesser, from being a burden to the others."""

from dataclasses import dataclass

from holdfast.core.settings import duration, integer, setting, size


@dataclass(frozen=True, kw_only=True)
class ProtectionSection:
    """Failed logins and rates."""

    login_failures_maximum: int = setting(
        integer(0, 1_000_000),
        10,
        """Failed logins of one address after which it is not looked at for login_ban_s, and of one
        user after which it is looked at once in login_delay_s. Who types a password wrong stays
        below; who guesses does not. 0: never.""",
        reloadable=True,
    )
    login_ban_s: int = setting(
        duration(1, 86_400),
        "1m",
        """How long an address is banned, and how long failures are counted together: ten guesses a
        minute find no password, and a device that was given the right one need not wait long.""",
        reloadable=True,
    )
    login_delay_s: int = setting(
        duration(0, 5),
        "1s",
        """How long the answer to a failed login waits. Less than a device notices among its
        retries, and more than guessing can bear.""",
        reloadable=True,
    )
    connections_per_second: int = setting(
        integer(0, 1_000_000),
        0,
        """CONNECTs that are taken in one second; more are refused with 0x9F. 0: without limit, for
        a fleet should be back quickly.""",
        reloadable=True,
    )
    client_messages_per_second: int = setting(
        integer(0, 2**32 - 1),
        0,
        """Messages that one client may send in one second; who sends more is disconnected with
        0x96. A credential may say otherwise. 0: without limit.""",
        reloadable=True,
    )
    client_bytes_per_second: int = setting(
        size(0, 2**32 - 1),
        0,
        """Bytes that one client may send in one second, at least one packet of
        maximum_packet_size_bytes; as client_messages_per_second otherwise.""",
        reloadable=True,
    )
    broker_messages_per_second: int = setting(
        integer(0, 2**32 - 1),
        0,
        """Messages that are read in one second from all clients together; what comes faster waits
        in their sockets. 0: without limit.""",
        reloadable=True,
    )
    broker_bytes_per_second: int = setting(
        size(0, 2**32 - 1),
        0,
        "Bytes that are read in one second, as broker_messages_per_second.",
        reloadable=True,
    )
