"""Bridges to other brokers: what all of them have in common."""

from dataclasses import dataclass

from holdfast.core.settings import choice, duration, setting, size
from holdfast.core.units import GIB, MIB


@dataclass(frozen=True, kw_only=True)
class BridgesSection:
    """The table `bridges`. Each bridge is a table `[[bridge]]` of its own (`core.bridge`)."""

    bridges_storage: str = setting(
        "bridges.storage",
        choice("IN_MEMORY", "FILE_NATIVE"),
        "IN_MEMORY",
        """FILE_NATIVE: what waits for a remote broker at QoS 1 and 2 survives a restart of this
        one, and exchanges of QoS 2 go on where they were. IN_MEMORY: a bridge begins anew at each
        start, with what comes from then on.""",
    )
    bridges_buffer_bytes: int = setting(
        "bridges.buffer_bytes",
        size(64 * 1024, 1 * GIB),
        16 * MIB,
        """What each bridge keeps in memory of messages at QoS 0 while its remote is away or reads
        slowly; beyond that the oldest go. Messages of QoS 1 and 2 wait in the log.""",
    )
    bridges_stall_timeout_s: int = setting(
        "bridges.stall_timeout_s",
        duration(5, 3_600),
        "60s",
        """A connection on which the remote acknowledges nothing for so long, although something
        waits for it, and takes no bytes of that either, is ended and opened anew.""",
    )
