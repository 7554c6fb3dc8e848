"""What is read for a connected APPLICATION client: one consumer for its own queue, and one for each
of its shared subscriptions (acceptance S0.15, S0.73, S0.88).

Owns: what is told of a consumer and its pack. Never: decides about a pack.
"""

from typing import Final

from msgspec import Struct

from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.server import Server
from holdfast.core.queue_names import consumer_group
from holdfast.core.subscription import shared_of

OWN: Final = 0
"""In place of a group's party: the client's own queue."""


class Consumer(Struct, kw_only=True):
    """What is read for a client: from its own queue, or as a member of a group."""

    queue_name: str
    consumer_group: str | None
    pack_first_offset: int | None
    pack_messages: int
    pack_unacknowledged: int
    pack_rounds: int


class Consumers:
    """Looks at the consumers of attached sessions."""

    def __init__(self, server: Server) -> None:
        stages = server.stages
        self._groups, self._packs = stages.groups, stages.packs
        self._dispatch = stages.kernel.dispatch

    def of(self, attached: Attached) -> list[Consumer]:
        """All of one client; none unless its queue has a name."""
        queue_name = attached.session.queue_name
        if queue_name is None or attached.queue is None:
            return []
        found = [self._consumer(attached.connection, queue_name, None, OWN)]
        for item in shared_of(attached.subscriptions):
            record = self._groups.record(item.topic_filter)
            if item.in_force and record is not None and record.queue_name is not None:
                group = consumer_group(record.parts.share_name, record.queue_name)
                found.append(
                    self._consumer(attached.connection, record.queue_name, group, record.party)
                )
        return found

    def committed_offset(self, attached: Attached) -> int:
        """Where its own queue is done: at the beginning of its pack, as long as one is open."""
        assert attached.queue is not None, "it is asked about once it is there"
        pack = self._dispatch.pack(attached.connection, OWN)
        first = None if pack is None else pack["first_offset"]
        return self._dispatch.mark(attached.queue) if first is None else int(first)

    def _consumer(
        self, connection: int, queue_name: str, group: str | None, party: int
    ) -> Consumer:
        pack = self._dispatch.pack(connection, party) or {}
        return Consumer(
            queue_name=queue_name,
            consumer_group=group,
            pack_first_offset=pack.get("first_offset"),
            pack_messages=pack.get("taken", 0),
            pack_unacknowledged=pack.get("pending", 0),
            pack_rounds=self._packs.rounds(connection, party),
        )
