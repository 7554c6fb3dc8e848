"""The name of a group that shares a queue: `$share/<share name>/<topic filter>`.

Owns: its syntax [MQTT 5 section 4.8.2]. Never: says whether the topic filter in it is valid, or
who is a member.
"""

from dataclasses import dataclass
from typing import Final

SHARED_PREFIX: Final = "$share/"


@dataclass(frozen=True, slots=True)
class ShareName:
    """A group's name in its two parts: two share names on one filter are two groups."""

    share_name: str
    topic_filter: str


def is_shared(topic_filter: str) -> bool:
    """True if a subscription to this means a group, whether or not the rest is valid."""
    return topic_filter.startswith(SHARED_PREFIX)


def parse_shared(topic_filter: str) -> ShareName | None:
    """The parts of a shared subscription's filter, `None` if it has none: the share name has a
    character and no wildcard [MQTT-4.8.2-1] [MQTT-4.8.2-2]."""
    share_name, slash, rest = topic_filter.removeprefix(SHARED_PREFIX).partition("/")
    if not share_name or not slash or "+" in share_name or "#" in share_name:
        return None
    return ShareName(share_name, rest)
