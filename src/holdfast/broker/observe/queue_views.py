"""Queues with names, as views on the one log: which messages each shows, and who reads it.

Owns: what a name stands for. Never: copies a message, or has anything of its own: a view is made
of sessions, groups and subscriptions when somebody asks for it.

Invariants:
1. A message has the same offset in every view, that of the log, and a view keeps the log's order.
2. A view shows what its subscriptions match at QoS 1 and 2, read or not, as long as the log has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.queue_names import Owner
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.observe.consumers import Consumers
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.log import LogState
from holdfast.broker.state.queues import in_flight_at_rest
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import QueueSpan
from holdfast.core.queue_names import EVERYTHING, PERSISTED, consumer_group
from holdfast.core.subscription import IN_FORCE, Subscription, keeping, own_of
from holdfast.kernel import topic_matches

Kind = Literal["log", "persisted", "application", "shared", "cursor", "bridge", "subscription"]
ALWAYS_THERE = (EVERYTHING, PERSISTED)
EVERYBODY = 0
"""In place of a party: whose own messages are not left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads a queue to its end: a client, a group of clients, the holder of a cursor, the
    remote of a bridge, or the consumers of a subscription."""

    consumer_group: str | None
    """The group's name; `None`: the client that the queue belongs to, or who holds the cursor."""
    consumers: tuple[str, ...]
    """The clients that are connected, or how the holder of a cursor calls itself."""
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

    def filters(self) -> list[str]:
        """Topic filters that match all that it shows."""
        return sorted({item.topic_filter for item in self.subscriptions})

    def shows(self, row: Mapping[str, Any]) -> bool:
        """True if a stored message, one of those that its filters match, is in it."""
        return any(self._holds(item, row) for item in self.subscriptions)

    def _holds(self, item: Subscription, row: Mapping[str, Any]) -> bool:
        return (
            (row["qos"] > 0 or item.keeps_all)
            and item.from_offset <= row["offset"] < item.until_offset
            and not (item.no_local and row["publisher"] == self.party)
            and topic_matches(item.topic_filter.encode(), row["topic"].encode())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContents:
    """What a queue shows."""

    first_offset: int | None
    """Of its oldest message."""
    oldest_at_us: int | None
    end_offset: int
    messages: int | None
    """`None` where there is too much to count, and so the next."""
    size_bytes: int | None


class QueueViews:
    """Makes views of what there is."""

    def __init__(self, broker: Broker) -> None:
        self._log, self._queues = broker.log, broker.queues
        self._sessions, self._groups = broker.sessions, broker.groups
        self._cursors, self._bridges = broker.cursors, broker.bridges
        self._subscriptions = broker.subscriptions
        self._consumers = Consumers(broker)

    def named(self, queue_name: str, inquiry: Inquiry) -> Pieces[QueueView | None]:
        """The queue of this name, if it belongs to a client, is shared or a cursor."""
        owner = self._queues.owner(queue_name)
        if owner is None:
            return None
        return (yield from self._of(queue_name, owner, inquiry))

    def page(self, after: str, limit: int, inquiry: Inquiry) -> Pieces[list[QueueView]]:
        """The queues that follow a name, in the order of their names."""
        views = []
        for queue_name, owner in self._queues.named_after(after, limit):
            found = yield from self._of(queue_name, owner, inquiry)
            if found is not None:
                views.append(found)
            yield from inquiry.rest()
        return views

    def contents(self, view: QueueView, inquiry: Inquiry) -> Pieces[QueueContents]:
        """What a queue shows up to what is durable now."""
        end = self._log.durable_offset()
        first = yield from self._first(view, end, inquiry)
        messages = yield from self.number(view, end, inquiry)
        size_bytes = yield from self._weight(view, end, inquiry)
        return QueueContents(
            first_offset=first if first < end else None,
            oldest_at_us=self._log.stored_at_us(first) if first < end else None,
            end_offset=end,
            messages=messages,
            size_bytes=size_bytes,
        )

    def number(self, view: QueueView, offset: int, inquiry: Inquiry) -> Pieces[int | None]:
        """How many messages a queue shows before an offset, if that can be counted."""
        if view.kind == "log":
            return offset - view.begin_offset
        if not view.counted:
            return None
        return (yield from inquiry.count(view.subscriptions, view.party, view.begin_offset, offset))

    def _weight(self, view: QueueView, end: int, inquiry: Inquiry) -> Pieces[int | None]:
        """About how many bytes of the log a queue shows, if that can be counted."""
        if view.kind == "log":
            return self._log.size_bytes()
        if not view.counted:
            return None
        return (yield from inquiry.weigh(view.subscriptions, view.party, view.begin_offset, end))

    def _first(self, view: QueueView, end: int, inquiry: Inquiry) -> Pieces[int]:
        """The offset of the first message that a queue shows, `end` if there is none."""
        if view.kind == "log":
            return view.begin_offset
        if not view.counted or not view.subscriptions:
            return end
        return (yield from inquiry.first(view.subscriptions, view.party, view.begin_offset, end))

    def _of(self, queue_name: str, owner: Owner, inquiry: Inquiry) -> Pieces[QueueView | None]:
        if owner.kind == "shared":
            return (yield from self._shared(queue_name, owner.of, inquiry))
        if owner.kind == "cursor":
            return (yield from self._cursor(queue_name, inquiry))
        if owner.kind == "bridge":
            return (yield from self._bridge(queue_name, owner.of, inquiry))
        if owner.kind == "subscription":
            return (yield from self._subscription(queue_name, inquiry))
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
        subscriptions = keeping(own)
        if attached is not None and attached.queue is not None:
            seen = self._queues.of(attached.queue)
            mark, in_flight = seen.mark, seen.in_flight
            committed = self._consumers.committed_offset(attached)
        else:
            rest = self._queues.at_rest(own_queue(session, own))
            mark = committed = rest.mark
            in_flight = in_flight_at_rest(rest)
        end = self._log.durable_offset()
        waiting = yield from inquiry.count(subscriptions, session.party, mark, end)
        reader = Reader(
            consumer_group=None,
            consumers=() if attached is None else (client_identifier,),
            committed_offset=committed,
            waiting=waiting,
            in_flight=in_flight,
        )
        span = QueueSpan(session.party, subscriptions, session.created_at_offset)
        kept = yield from self._queues.kept_from(inquiry, span)
        return QueueView(
            queue_name=queue_name,
            kind="application",
            client_identifier=client_identifier,
            party=session.party,
            subscriptions=subscriptions,
            created_at_offset=session.created_at_offset,
            begin_offset=_begin(kept, session.created_at_offset, [reader]),
            consumers=len(reader.consumers),
            readers=(reader,),
        )

    def _shared(
        self, queue_name: str, topic_filter: str, inquiry: Inquiry
    ) -> Pieces[QueueView | None]:
        groups = self._groups.of_queue(queue_name)
        if not groups:
            return None
        reads = [item for group in groups for item in group.reads]
        created_at = min(item.from_offset for item in reads)
        whole = reads[0]._replace(from_offset=created_at, until_offset=IN_FORCE)
        readers = []
        for group in groups:
            seen = self._groups.of(group.group)
            if seen is None:
                # It has ended while others were counted.
                continue
            queued = yield from self._groups.queued(seen.group, inquiry)
            reader = Reader(
                consumer_group=consumer_group(seen.name, queue_name),
                consumers=seen.members,
                committed_offset=seen.mark,
                waiting=queued + seen.in_flight,
                in_flight=seen.in_flight,
            )
            readers.append(reader)
        kept = yield from self._queues.kept_from(
            inquiry, QueueSpan(EVERYBODY, (whole,), created_at)
        )
        return QueueView(
            queue_name=queue_name,
            kind="shared",
            topic_filter=topic_filter,
            subscriptions=(whole,),
            created_at_offset=created_at,
            begin_offset=_begin(kept, created_at, readers),
            consumers=sum(len(reader.consumers) for reader in readers),
            readers=tuple(readers),
        )

    def _cursor(self, queue_name: str, inquiry: Inquiry) -> Pieces[QueueView | None]:
        seen = self._cursors.of(queue_name)
        if seen is None:
            return None
        end = self._log.durable_offset()
        reader = Reader(
            consumer_group=None,
            consumers=(seen.held_as,) if seen.holder else (),
            committed_offset=seen.place,
            waiting=(yield from inquiry.count(seen.reads, seen.party, seen.place, end)),
            in_flight=0,
        )
        return QueueView(
            queue_name=queue_name,
            kind="cursor",
            party=seen.party,
            subscriptions=seen.reads,
            created_at_offset=seen.place,
            begin_offset=seen.place,
            consumers=len(reader.consumers),
            readers=(reader,),
        )

    def _bridge(self, queue_name: str, name: str, inquiry: Inquiry) -> Pieces[QueueView | None]:
        seen, contents = self._bridges.of(name), self._bridges.contents(name)
        if seen is None or contents is None:
            return None
        reader = Reader(
            consumer_group=None,
            consumers=(seen.bridge.address,) if contents.is_connected else (),
            committed_offset=contents.mark,
            waiting=(yield from contents.count(contents.mark, self._log.durable_offset(), inquiry)),
            in_flight=seen.in_flight,
        )
        return QueueView(
            queue_name=queue_name,
            kind="bridge",
            party=contents.party,
            subscriptions=keeping(contents.record.reads),
            created_at_offset=contents.record.created_at_offset,
            begin_offset=contents.mark,
            consumers=len(reader.consumers),
            readers=(reader,),
        )

    def _subscription(self, queue_name: str, inquiry: Inquiry) -> Pieces[QueueView | None]:
        seen = self._subscriptions.of(queue_name)
        if seen is None:
            return None
        queued = yield from self._subscriptions.backlog(queue_name, inquiry)
        reader = Reader(
            consumer_group=seen.name,
            consumers=seen.consumers,
            committed_offset=seen.mark,
            waiting=queued + seen.in_flight,
            in_flight=seen.in_flight,
        )
        span = QueueSpan(seen.party, seen.reads, seen.created_at_offset)
        kept = yield from self._queues.kept_from(inquiry, span)
        return QueueView(
            queue_name=queue_name,
            kind="subscription",
            topic_filter=seen.topic_name,
            party=seen.party,
            subscriptions=seen.reads,
            created_at_offset=seen.created_at_offset,
            begin_offset=_begin(kept, seen.created_at_offset, [reader]),
            consumers=len(seen.consumers),
            readers=(reader,),
        )


def everything(log: LogState) -> QueueView:
    """The queue that shows the whole log."""
    begin = log.begin_offset()
    return QueueView(
        queue_name=EVERYTHING,
        kind="log",
        created_at_offset=begin,
        begin_offset=begin,
        consumers=0,
    )


def _begin(kept_from: int, created_at: int, readers: Sequence[Reader]) -> int:
    """Where it begins: what waits for a client that is connected is still there for it."""
    reached = (reader.committed_offset for reader in readers if reader.consumers)
    return max(min([kept_from, *reached]), created_at)
