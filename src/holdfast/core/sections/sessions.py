"""Sessions and their queues: for how long, and how much of them is kept."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.settings import (
    EVERY_HOUR,
    boolean,
    choice,
    cron,
    duration,
    integer,
    setting,
    time_zone,
)
from holdfast.core.units import CENTURY_S


@dataclass(frozen=True, kw_only=True)
class SessionsSection:
    """The tables `session`, `queue` and `device`."""

    session_expiry_maximum_s: int = setting(
        "session.expiry_maximum_s",
        duration(1, 2**32 - 2),
        "7d",
        """The longest Session Expiry Interval that is granted; a client that asks for more gets
        this and is told so.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL",),
        reloadable=True,
    )
    session_ttl_s: int = setting(
        "session.ttl_s",
        duration(-1, CENTURY_S),
        "7d",
        """How long a session is kept after its client has gone if the protocol would keep it for
        ever. 0 or less: for ever.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_TTL",),
        reloadable=True,
    )
    session_expiry_cron: str = setting(
        "session.expiry_cron",
        cron(),
        EVERY_HOUR,
        """When sessions that have expired are cleared away: every hour. They end when they expire,
        whenever that is; this is when what they had is removed. In Quartz's syntax, seconds first,
        or plain with five fields.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_CRON",),
        reloadable=True,
    )
    session_expiry_zone: str = setting(
        "session.expiry_zone",
        time_zone(),
        "UTC",
        "The time zone of session.expiry_cron.",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_ZONE",),
        reloadable=True,
    )
    session_strict_expiry: bool = setting(
        "session.strict_expiry",
        boolean(),
        False,
        """True: an MQTT 5 session with Clean Start 0 and expiry 0 ends with its connection, as the
        standard says. False: it is kept for session.ttl_s.""",
        aliases=("mqtt5.strict_session_expiry",),
        reloadable=True,
    )
    queue_messages_maximum: int = setting(
        "queue.messages_maximum",
        integer(0, 2**63 - 1),
        10_000,
        """Messages kept for one absent session of a DEVICE client; beyond it, queue.keep decides.
        So many outlive their segment. 0: as many as the log keeps, and none outlives it.""",
        aliases=("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT",),
        reloadable=True,
    )
    queue_keep: Literal["newest", "oldest"] = setting(
        "queue.keep",
        choice("newest", "oldest"),
        "newest",
        "Which messages an absent session keeps when there are more than it may have.",
        reloadable=True,
    )
    queue_ttl_s: int = setting(
        "queue.ttl_s",
        duration(0, CENTURY_S),
        "7d",
        """How old a message may get in the queue of an absent session of a DEVICE client before it
        is removed. 0: as old as the log keeps it.""",
        aliases=("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_TTL",),
        reloadable=True,
    )
    device_write_and_flush: bool = setting(
        "device.write_and_flush",
        boolean(),
        True,
        """True: nothing that can be sent to a DEVICE client waits for more; all of it leaves in the
        turn. False: up to device.flush_messages make one write.""",
        aliases=("MQTT_PERSISTENT_MSG_WRITE_AND_FLUSH",),
        reloadable=True,
    )
    device_flush_messages: int = setting(
        "device.flush_messages",
        integer(1, 65_535),
        5,
        "Messages to a DEVICE client in one write, where device.write_and_flush is false.",
        aliases=("MQTT_PERSISTENT_BUFFERED_MSG_COUNT",),
        reloadable=True,
    )
