"""What is read for a connected APPLICATION client: one consumer for its own queue, and one for each
of its shared subscriptions (acceptance S0.15, S0.73, S0.88).

Owns: what is told of a consumer and its pack. Never: decides about a pack.
"""

from dataclasses import dataclass

from holdfast.broker.state.broker import Broker
from holdfast.broker.state.queues import OWN
from holdfast.broker.state.sessions import AttachedSeen
from holdfast.core.queue_names import consumer_group
from holdfast.core.subscription import shared_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """What is read for a client: from its own queue, or as a member of a group."""

    queue_name: str
    consumer_group: str | None
    pack_first_offset: int | None
    pack_messages: int
    pack_unacknowledged: int
    pack_rounds: int


class Consumers:
    """Looks at the consumers of attached sessions."""

    def __init__(self, broker: Broker) -> None:
        self._groups, self._queues = broker.groups, broker.queues

    def of(self, attached: AttachedSeen) -> list[Consumer]:
        """All of one client; none unless its queue has a name."""
        queue_name = attached.session.queue_name
        if queue_name is None or attached.queue is None:
            return []
        found = [self._consumer(attached.connection, queue_name, None, OWN)]
        for item in shared_of(attached.subscriptions):
            known = self._groups.known(item.topic_filter)
            if item.in_force and known is not None and known.queue_name is not None:
                group = consumer_group(known.name, known.queue_name)
                found.append(
                    self._consumer(attached.connection, known.queue_name, group, known.party)
                )
        return found

    def committed_offset(self, attached: AttachedSeen) -> int:
        """Where its own queue is done: at the beginning of its pack, as long as one is open."""
        assert attached.queue is not None, "it is asked about once it is there"
        pack = self._queues.pack(attached.connection)
        first = None if pack is None else pack.first_offset
        return self._queues.of(attached.queue).mark if first is None else first

    def _consumer(
        self, connection: int, queue_name: str, group: str | None, party: int
    ) -> Consumer:
        pack = self._queues.pack(connection, party)
        return Consumer(
            queue_name=queue_name,
            consumer_group=group,
            pack_first_offset=None if pack is None else pack.first_offset,
            pack_messages=0 if pack is None else pack.messages,
            pack_unacknowledged=0 if pack is None else pack.unacknowledged,
            pack_rounds=0 if pack is None else pack.rounds,
        )
