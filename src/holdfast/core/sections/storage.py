"""The log: how durable, how large, for how long."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.settings import choice, duration, or_automatic, setting, size, texts
from holdfast.core.units import CENTURY_S, GIB, MIB


def _is_filter_like(item: str) -> bool:
    # The kernel judges filters; here only what could never be one is refused.
    return bool(item) and "\0" not in item and len(item.encode()) <= 65_535


@dataclass(frozen=True, kw_only=True)
class StorageSection:
    """The table `log`."""

    durability: Literal["fsync", "os", "memory"] = setting(
        "log.durability",
        choice("fsync", "os", "memory"),
        "fsync",
        """What an acknowledged message has survived: fsync, the loss of power; os, the death of the
        broker; memory, nothing. Weaker than fsync is said at start.""",
    )
    segment_bytes: int = setting(
        "log.segment_bytes",
        size(1 * MIB, 2 * GIB),
        "64MiB",
        "The size at which a log segment is sealed: the unit that retention removes.",
    )
    cache_bytes: int = setting(
        "log.cache_bytes",
        size(1 * MIB, 64 * GIB),
        "64MiB",
        "Memory for stored messages that are read back; queues near the end need no disk.",
    )
    page_cache_bytes: int = setting(
        "log.page_cache_bytes",
        size(0, 2**50),
        "256MiB",
        """How far behind the log's end a segment may lie before the system gets back the memory
        that it has for the file. Whoever reads it then reads the disk: raise it where the disk is
        slow and there is memory for all that clients come back for.""",
        reloadable=True,
    )
    reserve_bytes: int = setting(
        "log.reserve_bytes",
        size(1 * MIB, 64 * GIB),
        "64MiB",
        """Space kept so that a full disk still takes acknowledgements and control records:
        consumers drain while publishers are refused.""",
    )
    checkpoint_bytes: int = setting(
        "log.checkpoint_bytes",
        size(1 * MIB, 64 * GIB),
        "256MB",
        "Derived state is written after this much log; recovery reads at most this much again.",
        reloadable=True,
    )
    retention_age_s: int = setting(
        "log.retention_age_s",
        duration(1, CENTURY_S),
        "7d",
        "Messages older than this may be removed, by whole segments.",
        reloadable=True,
    )
    retention_bytes: int = setting(
        "log.retention_bytes",
        or_automatic(size(1 * MIB, 2**50)),
        "auto",
        """The log's size, without the records that are in force, beyond which the oldest segments
        may be removed; auto is the smaller of 10 GB and a tenth of the disk.""",
        reloadable=True,
    )
    store_all: tuple[str, ...] = setting(
        "log.store_all",
        texts(_is_filter_like, "a topic filter"),
        "",
        "Topic filters whose messages of QoS 0 are stored too; otherwise they pass through.",
        reloadable=True,
    )
