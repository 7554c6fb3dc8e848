"""Sessions and their queues: for how long, and how much of them is kept."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core import limits
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
    """Sessions and their queues."""

    session_expiry_maximum_s: int = setting(
        duration(1, 2**32 - 2),
        "7d",
        """The longest Session Expiry Interval that is granted; a client that asks for more gets
        this and is told so.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL",),
        reloadable=True,
    )
    session_ttl_s: int = setting(
        duration(-1, CENTURY_S),
        "7d",
        """How long a session is kept after its client has gone if the protocol would keep it for
        ever. 0 or less: for ever.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_TTL",),
        reloadable=True,
    )
    session_expiry_cron: str = setting(
        cron(),
        EVERY_HOUR,
        """When sessions that have expired are cleared away: every hour. They end when they expire,
        whenever that is; this is when what they had is removed. In Quartz's syntax, seconds first,
        or plain with five fields.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_CRON",),
        reloadable=True,
    )
    session_expiry_zone: str = setting(
        time_zone(),
        "UTC",
        "The time zone of session_expiry_cron.",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_ZONE",),
        reloadable=True,
    )
    strict_session_expiry: bool = setting(
        boolean(),
        False,
        """True: an MQTT 5 session with Clean Start 0 and expiry 0 ends with its connection, as the
        standard says. False: it is kept for session_ttl_s.""",
        aliases=("mqtt5.strict_session_expiry",),
        reloadable=True,
    )
    queue_messages_maximum: int = setting(
        integer(1, limits.QUEUE_MESSAGES_HARD_MAXIMUM),
        10_000,
        "Messages kept for one absent session of a DEVICE client; beyond it, queue_keep decides.",
        aliases=("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT",),
        reloadable=True,
    )
    queue_keep: Literal["newest", "oldest"] = setting(
        choice("newest", "oldest"),
        "newest",
        "Which messages an absent session keeps when there are more than it may have.",
        reloadable=True,
    )
    queue_ttl_s: int = setting(
        duration(0, CENTURY_S),
        "7d",
        """How old a message may get in the queue of an absent session of a DEVICE client before it
        is removed. 0: as old as the log keeps it.""",
        aliases=("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_TTL",),
        reloadable=True,
    )
    device_write_and_flush: bool = setting(
        boolean(),
        True,
        """True: nothing that can be sent to a DEVICE client waits for more; all of it leaves in the
        turn. False: up to device_flush_messages make one write.""",
        aliases=("MQTT_PERSISTENT_MSG_WRITE_AND_FLUSH",),
        reloadable=True,
    )
    device_flush_messages: int = setting(
        integer(1, 65_535),
        5,
        "Messages to a DEVICE client in one write, where device_write_and_flush is false.",
        aliases=("MQTT_PERSISTENT_BUFFERED_MSG_COUNT",),
        reloadable=True,
    )
    sessions_maximum: int = setting(
        integer(1, 100_000_000),
        1_000_000,
        """Sessions that are kept, connected or not; a client that would add one is refused with
        0x97. Each costs about a kilobyte of disk, for as long as it is kept.""",
        reloadable=True,
    )
    shared_group_expiry_s: int = setting(
        duration(0, 10 * 365 * 86_400),
        "0s",
        """How long a group of shared subscriptions that no session subscribes to any more keeps its
        queue. 0: it ends with its last subscription. Workers that come under new names each time
        need more, or what was published while none was there is not kept.""",
        reloadable=True,
    )
    slow_reader_messages_maximum: int = setting(
        integer(1, 1_000_000),
        10_000,
        """Messages that the reader of a session that is not kept may lag behind; older ones are
        skipped and counted, so that a slow reader costs bounded memory.""",
        reloadable=True,
    )
