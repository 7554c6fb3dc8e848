"""How many connections the limit of open files leaves room for.

Owns: what the broker opens beside connections. Never: asks or changes the limit (`system` does).

A socket that cannot be accepted for want of a descriptor waits in the operating system's queue and
nobody is told; so the limit is said at start, and connections beyond it are turned away and counted
while there is still a descriptor to do it with.
"""

from holdfast.core.config import Config
from holdfast.core.limits import LISTENING_HANDLES

FILES_BESIDE = 128
"""The view, the event loop, HTTP connections, and connections about to be turned away."""
READERS = 1 + 4
"""Whoever may have each segment of the log open: the log itself, and the readers of the HTTP
interface."""
CLIENTS_SHARE = 2
"""Clients get one half of the descriptors at least, however many segments there are: a
reader that finds none left is told so, a client is not."""


def connections_possible(config: Config, open_files: int) -> int:
    """How many connections may be open at once: as many as configured, or as the limit allows."""
    room = open_files - _beside(config)
    return min(config.connections_maximum, max(room, open_files // CLIENTS_SHARE))


def warning(config: Config, open_files: int) -> str | None:
    """What to say of a limit that is too low, and what to do about it; `None` if it is not."""
    possible = connections_possible(config, open_files)
    if possible >= config.connections_maximum:
        return None
    needed = config.connections_maximum + _beside(config)
    return (
        f"the limit of {open_files} open files allows {possible} connections, not"
        f" {config.connections_maximum} (limits.connections_maximum); raise it to {needed}:"
        " LimitNOFILE= in the systemd unit, --ulimit nofile= for a container, ulimit -Hn in a shell"
    )


def _beside(config: Config) -> int:
    segments = config.retention_bytes // config.segment_bytes + 2
    listening = LISTENING_HANDLES * len(config.ports) * len(config.hosts)
    return FILES_BESIDE + listening + READERS * segments
