"""Bridges as they are seen from outside."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.broker.bridge.bridges import Bridges
from holdfast.broker.bridge.events import LinkCounts, LinkEvent
from holdfast.broker.bridge.link import Link, State
from holdfast.broker.bridge.queue import Carried
from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.losses import Losses
from holdfast.broker.delivery.queue_at_rest import own_flights
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.bridge import Bridge
from holdfast.core.loss_reason import LossReason
from holdfast.core.quota import Quota
from holdfast.kernel import describe_state
from holdfast.protocols.mqtt.remote import Granted

NOTHING = LinkCounts()
NOTHING_CARRIED = Carried(0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSeen:
    """A bridge with how far it is."""

    bridge: Bridge
    is_configured: bool
    state: State
    last_error: str
    next_attempt_at_us: int | None
    connected_at_us: int | None
    granted: Granted | None
    counts: LinkCounts
    events: tuple[LinkEvent, ...]
    shelf: tuple[int, int]
    """Messages of QoS 0 that wait in memory, and the bytes that they take."""
    in_flight: int
    sent: int
    repeated: int
    acknowledged: int
    received: int
    received_and_lost: int
    lost: Mapping[LossReason, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the queue of a bridge is made of."""

    party: int
    record: QueueRecord
    mark: int
    polled_to: int
    """Below it everything has been read."""
    is_connected: bool
    ended_at_us: int | None
    """When the last connection ended on which it could send, if one has since the broker began."""
    quota: Quota
    flights: frozenset[int]
    """Offsets of messages in flight, and ..."""
    sent_at_us: Mapping[int, int]
    """... when those were sent last that were sent on this connection."""
    received: frozenset[int]
    """Those of them that the remote has said to have (PUBREC): they are not sent again."""
    completing: tuple[int, ...]
    """Offsets below the mark of messages that are in flight until PUBCOMP."""
    acknowledged: tuple[tuple[int, int], ...]
    """Ranges of offsets above the mark."""

    def count(self, begin: int, end: int, inquiry: Inquiry) -> Pieces[int]:
        """How many messages it has between two offsets."""
        reads, rules = self.record.reads, self.record.rules
        return inquiry.count(reads, self.party, begin, end, rules=rules)

    def first(self, begin: int, end: int, inquiry: Inquiry) -> Pieces[int]:
        """The first message of it between two offsets; the end of the range, or of what is durable,
        if there is none."""
        reads, rules = self.record.reads, self.record.rules
        return inquiry.first(reads, self.party, begin, end, rules=rules)

    def first_offset(self) -> int:
        """Of what the remote is not done with, or the mark."""
        return min((self.mark, *self.completing))

    def is_awaited(self, offset: int) -> bool:
        """True of what was sent on this connection, and of what only PUBCOMP is missing from."""
        return self.is_connected and (offset in self.sent_at_us or offset in self.received)

    def is_done(self, offset: int) -> bool:
        """True of what is acknowledged, or given up."""
        return offset < self.mark or any(first <= offset < end for first, end in self.acknowledged)


class BridgesState:
    """Looks at one bridge at a time."""

    def __init__(self, bridges: Bridges, queues: Queues, losses: Losses) -> None:
        self._bridges = bridges
        self._queues = queues
        self._losses = losses

    def names(self) -> list[str]:
        """All bridges by name."""
        return self._bridges.names()

    def of(self, name: str) -> BridgeSeen | None:
        """One bridge, if it is there."""
        found = self._bridges.find(name)
        if found is None:
            return None
        bridge, is_configured, link = found
        record = self._bridges.record(name)
        inbound, carried = (0, 0), NOTHING_CARRIED
        if link is not None:
            inbound, carried = link.inbound(), link.queue.carried()
        return BridgeSeen(
            bridge=bridge,
            is_configured=is_configured,
            state=State.STOPPED if link is None else link.state,
            last_error="" if link is None else link.last_error,
            next_attempt_at_us=None if link is None else link.next_attempt_at_us,
            connected_at_us=None if link is None else link.connected_at_us,
            granted=None if link is None else link.granted,
            counts=NOTHING if link is None else link.counts,
            events=() if link is None else tuple(link.events),
            shelf=(0, 0) if link is None else link.queue.shelved(),
            in_flight=_in_flight(link),
            sent=carried.sent,
            repeated=carried.repeated,
            acknowledged=0 if link is None else link.queue.acknowledged(),
            received=inbound[0],
            received_and_lost=inbound[1],
            lost={} if record is None else dict(self._losses.watched.get(record.party, {})),
        )

    def contents(self, name: str, *, whole: bool = False) -> Contents | None:
        """What the queue of a bridge is made of; none before its first start. `whole`: of one that
        runs, too, with what is in flight and acknowledged, one by one."""
        found, record = self._bridges.find(name), self._bridges.record(name)
        if found is None or record is None:
            return None
        link = found[2]
        if link is None:
            rest = self._queues.at_rest(record)
            mark = polled_to = rest.mark
            state = rest.state
            completing = tuple(offset for offset in own_flights(state) if offset < mark)
        else:
            mark, polled_to = link.queue.mark(), link.queue.polled_to()
            state = link.queue.state() if whole else b""
            completing = link.queue.completing()
        told = describe_state(state) if state else {"in_flight": (), "acknowledged": ()}
        return Contents(
            party=record.party,
            record=record if link is None else link.queue.record,
            mark=mark,
            polled_to=polled_to,
            is_connected=link is not None and link.state is State.CONNECTED,
            ended_at_us=None if link is None else link.ended_at_us,
            quota=self._queues.quota(record),
            flights=frozenset(flight["offset"] for flight in told["in_flight"]),
            sent_at_us=link.queue.sent_at_us() if link is not None and whole else {},
            received=frozenset(own_flights(state, "received")),
            completing=completing,
            acknowledged=tuple((first, end) for first, end in told["acknowledged"]),
        )


def _in_flight(link: Link | None) -> int:
    return 0 if link is None else link.queue.in_flight()
