"""What a broker has counted, without a broker."""

from dataclasses import fields
from typing import Any

from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.store.commit_times import BOUNDS_S

KERNEL = {
    "deliveries": ("deliveries", "redeliveries", "completed", "answered", "refused"),
    "egress": ("publishes_sent", "payload_bytes_sent", "acknowledgements_sent", "pings_answered"),
    "pulsar_egress": (
        *("entries_sent", "messages_sent", "receipts_sent", "refusals_sent", "replies_sent"),
        "pings_answered",
    ),
    "log": (
        "segments",
        "bytes",
        "topics",
        "commits",
        "committed_bytes",
        "records_appended",
        "cache_hits",
        "cache_misses",
    ),
    "routes": ("publishes_denied", "topics_withheld"),
}


def snapshot(**given: Any) -> Snapshot:
    """What a broker counts that has nothing to count, but for what is given."""
    numbers: dict[str, Any] = {field.name: 0 for field in fields(Snapshot)}
    numbers |= {name: dict.fromkeys(keys, 0) for name, keys in KERNEL.items()}
    empty = ("counts", "losses", "accepted", "stuck", "groups_by_strategy", "remembered")
    numbers |= {name: {} for name in empty}
    numbers |= {name: {} for name in numbers if name.startswith("step")}
    numbers |= {
        "busiest": (),
        "cursors": (),
        "bridges": (),
        "environments": (),
        "oldest_groups": (),
        "oldest_subscriptions": (),
        "taken_by_others": {},
        "losses_of_environments": {},
        "commit_counts": (0,) * (len(BOUNDS_S) + 1),
        "durability": "fsync",
    }
    numbers |= {"publishes_received_by_qos": (0, 0, 0)}
    return Snapshot(**numbers | given)
