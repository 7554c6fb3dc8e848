"""Control records of versions before: groups and re-drives had tables of their own.

Owns: what their values mean. Never: writes one.
"""

from holdfast.broker.store.tables import QueueRecord, parse_value
from holdfast.core.subscription import Subscription


def parse_group(value: bytes) -> QueueRecord:
    """The queue of a group from its row in GROUPS."""
    fields = parse_value(value)
    reads = tuple(Subscription(**item) for item in fields["reads"])
    return QueueRecord(
        party=fields["party"],
        kind="group",
        owner=fields["name"],
        created_at_offset=min(item.from_offset for item in reads),
        reads=reads,
        queue_name=fields.get("queue_name"),
        ends_at_us=fields.get("ends_at_us"),
    )


def parse_redrive(value: bytes) -> QueueRecord:
    """The queue of a re-drive from its row in REDRIVES."""
    fields = parse_value(value)
    reads = tuple(Subscription(**item) for item in fields["reads"])
    return QueueRecord(
        party=fields["party"],
        kind="redrive",
        owner=str(fields["loss"]),
        created_at_offset=min(item.from_offset for item in reads),
        reads=reads,
        target=fields["target"],
        end_offset=fields["end_offset"],
    )
