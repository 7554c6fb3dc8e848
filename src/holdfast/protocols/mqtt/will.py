"""When a Will is published [MQTT 5 section 3.1.2.5, 3.1.3.2.2].

Owns: the moment. Never: publishes; that is an ordinary publish by whoever asked.
"""

from enum import Enum

from holdfast.core.units import SECOND_US
from holdfast.protocols.mqtt.packets import Will


class Ending(Enum):
    """How a connection ended."""

    NORMAL = "DISCONNECT with reason code 0x00"
    ABNORMAL = "anything else: lost, silent, at fault, or DISCONNECT with another reason code"
    RESUMED = "another connection took the session over and goes on with it"
    DISCARDED = "the session ends with the connection"
    SHUT_DOWN = "the broker stops"


def waits_for_restart(will: Will | None, expiry_s: int | None, ending: Ending) -> bool:
    """True if the Will of a connected session, kept so long afterwards, is decided about when the
    broker is back.

    A server that shuts down may defer Wills until its restart [MQTT 5 section 3.1.2.5]. One with
    a delay is deferred, and its delay counts from the restart: a client that comes back in time is
    not told to have gone because the broker was. One without a delay would have to go out at the
    restart before its client can come back, so it goes out at once; and a session that ends with
    its connection takes the delay along.
    """
    if ending is not Ending.SHUT_DOWN or will is None:
        return False
    return expiry_s != 0 and will.delay_interval_s > 0


def plan_will(will: Will | None, expiry_s: int | None, ending: Ending, now_us: int) -> int | None:
    """When the Will of a connected session, kept so long afterwards, is due once its connection has
    ended so; `None`: never."""
    if will is None or ending is Ending.NORMAL:
        return None
    delay_s = will.delay_interval_s
    if ending is Ending.DISCARDED:
        return now_us
    if ending is Ending.RESUMED:
        # A connection within the delay cancels the Will, and this one is there already
        # [MQTT-3.1.3-9]; without a delay the Will came first.
        return now_us if delay_s == 0 else None
    if expiry_s is not None:
        # The Will goes out when the delay has passed or the session ends, whichever is first.
        delay_s = min(delay_s, expiry_s)
    return now_us + delay_s * SECOND_US
