"""Queues with names, as views on the one log: which messages each shows, and who reads it.

Owns: what a name stands for. Never: copies a message, or has anything of its own: a view is made
of sessions, groups and subscriptions when somebody asks for it.

Invariants:
1. A message has the same offset in every view, that of the log, and a view keeps the log's order.
2. A view shows what its subscriptions match at QoS 1 and 2, read or not, as long as the log has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.broker.admin.v1.consumers import Consumers
from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_names import Owner
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom, QueueSpan
from holdfast.core.queue_names import EVERYTHING, PERSISTED, consumer_group
from holdfast.core.quota import quota_of
from holdfast.core.subscription import IN_FORCE, Subscription, own_of
from holdfast.kernel import describe_state, topic_matches

Kind = Literal["log", "persisted", "application", "shared"]
ALWAYS_THERE = (EVERYTHING, PERSISTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads a queue to its end: a client, or a group of clients."""

    consumer_group: str | None
    """The group's name; `None`: the client that the queue belongs to."""
    consumers: tuple[str, ...]
    """The clients that are connected."""
    committed_offset: int
    """Everything below it is done: the beginning of the client's pack while it has one."""
    waiting: int
    """Messages that are not acknowledged, those in flight among them."""
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue with a name."""

    queue_name: str
    kind: Kind
    client_identifier: str | None = None
    topic_filter: str | None = None
    party: int = 0
    """Whose own messages No Local leaves out."""
    subscriptions: tuple[Subscription, ...] = ()
    """What it shows; those at QoS 0 show nothing."""
    counted: bool = True
    """False: its subscriptions are too many to count by, and are not listed."""
    created_at_offset: int
    begin_offset: int
    """The first offset of which it may still show something."""
    consumers: int
    """Connected clients that read it."""
    readers: tuple[Reader, ...] = ()

    def tables(self) -> list[dict[str, Any]]:
        """Its subscriptions as the kernel takes them."""
        return [item.table() for item in self.subscriptions]

    def filters(self) -> list[str]:
        """Topic filters that match all that it shows."""
        return sorted({item.topic_filter for item in self.subscriptions})

    def shows(self, row: Mapping[str, Any]) -> bool:
        """True if a stored message, one of those that its filters match, is in it."""
        return row["qos"] > 0 and any(self._holds(item, row) for item in self.subscriptions)

    def _holds(self, item: Subscription, row: Mapping[str, Any]) -> bool:
        return (
            item.from_offset <= row["offset"] < item.until_offset
            and not (item.no_local and row["publisher"] == self.party)
            and topic_matches(item.topic_filter.encode(), row["topic"].encode())
        )


class QueueViews:
    """Makes views of what there is."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._records = server.records
        stages = server.stages
        self._log, self._dispatch = stages.kernel.log, stages.kernel.dispatch
        self._sessions, self._groups = stages.sessions, stages.groups
        self._queues = stages.queues
        self._names = stages.queue_names
        self._consumers = Consumers(server)
        self._kept = KeptFrom(self._log)

    def named(self, queue_name: str, inquiry: Inquiry) -> Pieces[QueueView | None]:
        """The queue of this name, if it belongs to a client or is shared."""
        owner = self._names.owner(queue_name)
        if owner is None:
            return None
        return (yield from self._of(queue_name, owner, inquiry))

    def page(self, after: str, limit: int, inquiry: Inquiry) -> Pieces[list[QueueView]]:
        """The queues that follow a name, in the order of their names."""
        views = []
        for queue_name, owner in self._names.page(after, limit):
            found = yield from self._of(queue_name, owner, inquiry)
            if found is not None:
                views.append(found)
            yield from inquiry.rest()
        return views

    def _of(self, queue_name: str, owner: Owner, inquiry: Inquiry) -> Pieces[QueueView | None]:
        if owner.kind == "shared":
            return (yield from self._shared(queue_name, owner.of, inquiry))
        attached = self._sessions.attached(owner.of)
        session = self._sessions.on_record(owner.of) if attached is None else attached.session
        # It may have ended within this turn.
        if session is None:
            return None
        return (yield from self._application(queue_name, session, inquiry))

    def _application(
        self, queue_name: str, session: Session, inquiry: Inquiry
    ) -> Pieces[QueueView]:
        client_identifier = session.client_identifier
        attached = self._sessions.attached(client_identifier)
        if attached is None:
            own = own_of(self._sessions.subscriptions(session))
        else:
            own = own_of(attached.subscriptions)
        subscriptions = tuple(item for item in own if item.qos > 0)
        if attached is not None and attached.queue is not None:
            mark = self._dispatch.mark(attached.queue)
            committed = self._consumers.committed_offset(attached)
            in_flight = self._dispatch.in_flight(attached.queue)
        else:
            rest = self._queues.at_rest(own_queue(session, own))
            mark = committed = rest.mark
            in_flight = len(describe_state(rest.state)["in_flight"]) if rest.state else 0
        tables, end = [item.table() for item in subscriptions], self._log.durable_offset()
        waiting = yield from inquiry.count(tables, session.party, mark, end)
        reader = Reader(
            consumer_group=None,
            consumers=() if attached is None else (client_identifier,),
            committed_offset=committed,
            waiting=waiting,
            in_flight=in_flight,
        )
        span = QueueSpan(session.party, subscriptions, session.created_at_offset)
        begin_offset = yield from self._begin(span, [reader], inquiry)
        return QueueView(
            queue_name=queue_name,
            kind="application",
            client_identifier=client_identifier,
            party=session.party,
            subscriptions=subscriptions,
            created_at_offset=session.created_at_offset,
            begin_offset=begin_offset,
            consumers=len(reader.consumers),
            readers=(reader,),
        )

    def _shared(
        self, queue_name: str, topic_filter: str, inquiry: Inquiry
    ) -> Pieces[QueueView | None]:
        records = self._groups.of_queue(queue_name)
        if not records:
            return None
        reads = [item for record in records for item in record.reads]
        created_at = min(item.from_offset for item in reads)
        whole = replace(reads[0], from_offset=created_at, until_offset=IN_FORCE)
        readers = []
        for record in records:
            told = self._groups.describe(record.owner, self._client_on)
            queued = yield from self._groups.queued(record.owner, inquiry)
            reader = Reader(
                consumer_group=consumer_group(record.parts.share_name, queue_name),
                consumers=tuple(told["members"]),
                committed_offset=told["mark"],
                waiting=queued,
                in_flight=told["in_flight"],
            )
            readers.append(reader)
        begin_offset = yield from self._begin(QueueSpan(0, (whole,), created_at), readers, inquiry)
        return QueueView(
            queue_name=queue_name,
            kind="shared",
            topic_filter=topic_filter,
            subscriptions=(whole,),
            created_at_offset=created_at,
            begin_offset=begin_offset,
            consumers=sum(len(reader.consumers) for reader in readers),
            readers=tuple(readers),
        )

    def _begin(self, span: QueueSpan, readers: Sequence[Reader], inquiry: Inquiry) -> Pieces[int]:
        """Where it begins: what waits for a client that is connected is still there for it."""
        quota, now_us = quota_of(self._server.config, "client", named=True), self._server.now_us()
        begin = yield from self._kept.offset(inquiry, span, quota, now_us)
        reached = (reader.committed_offset for reader in readers if reader.consumers)
        return max(min([begin, *reached]), span.created_at_offset)

    def _client_on(self, connection: int) -> str:
        attached = self._sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier
