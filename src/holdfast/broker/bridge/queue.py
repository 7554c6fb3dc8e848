"""The queue of a bridge: what the remote broker still has to get (Tier 1), and where it goes.

Owns: its record, and that it is attached somewhere as long as the bridge runs: to the connection
with the remote, or while there is none to a place of its own. There it goes on reading as far as a
queue may have entries in memory (Tier 2), and messages of QoS 0 wait on a shelf.
Never: opens a connection, or decides when.

Invariants:
1. From `begin` to `end` it is attached: there is no step in between in which a message of QoS 0
   could pass it by.
2. A connection is attached with what an earlier one left: what was in flight comes again first,
   with DUP under its packet identifier, once.
3. If the remote has forgotten the session, what it has not said to have is sent as new, and what it
   has said to have is not sent again.
4. What is beyond its limit is counted in pieces while it is attached, and nothing of it is sent
   before that.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.broker.access.rules import Grant
from holdfast.broker.bridge.terms import (
    caller,
    driven,
    is_named,
    reads,
    receive_grant,
    rules,
    taken,
    within,
)
from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_at_rest import Cut, QueueAtRest
from holdfast.broker.delivery.queues import Prepared, Queues
from holdfast.broker.delivery.redrives import Redrives, Target
from holdfast.broker.mqtt.subscriptions import Subscriptions
from holdfast.broker.sockets.connection import Connections
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.bridge import Bridge
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import Subscription
from holdfast.kernel import NoticeKind, RangeSet, Rewriting, describe_state, unreleased
from holdfast.protocols.mqtt.handshake import PACKET_SIZE_BYTES_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT
from holdfast.protocols.mqtt.remote import Granted

PACKET_IDENTIFIER_MAXIMUM = 65_535
HELD_AS_CONNECTED = "connected"
"""Its record says so while it is: after a crash that is how we know that messages of QoS 1 may have
been sent."""


class Carried(NamedTuple):
    """Messages of a bridge since `begin`."""

    sent: int
    """Each as often as it was."""
    repeated: int
    """Those that were sent again, after a connection was lost."""
    again: int
    """Others with a content that had been sent lately, where no hops are counted."""
    passing: int
    """Those of QoS 0 that have come, sent or not."""


class BridgeQueue:
    """The queue of one bridge."""

    def __init__(
        self,
        kernel: KernelStages,
        connections: Connections,
        queues: Queues,
        redrives: Redrives,
        chores: Chores,
        record: QueueRecord,
        shelf_bytes_maximum: int,
        clock_us: Callable[[], int],
    ) -> None:
        self._kernel = kernel
        self._connections = connections
        self._queues = queues
        self._redrives = redrives
        self._chores = chores
        self._clock_us = clock_us
        self._subscriptions = Subscriptions(kernel)
        self._shelf_bytes_maximum = shelf_bytes_maximum
        self.record = record
        self.is_connected = False
        """It is attached to a connection with the remote."""
        self._terms: Subscription | None = None
        """On which it takes what is driven again, as soon as it does."""
        self._weighing: Pieces[None] | None = None
        """What is beyond its limit is being counted."""
        self._acknowledged_before = 0
        self._connection = 0
        self._queue = 0
        self._unreleased = b""
        self._sent_before = 0
        self._noted_at = 0
        self._grant: Grant | None = None
        self._place: tuple[int, tuple[Subscription, ...], int]
        """As it was attached last: where, for what, and how much may be in flight."""
        self._bridge: Bridge
        self._rewriting: Rewriting

    def begin(self, rewriting: Rewriting, bridge: Bridge) -> None:
        """Attaches it to its own place."""
        self._rewriting = rewriting
        self._bridge = bridge
        self._grant = receive_grant(self.record.rules)
        if self.record.held_as == HELD_AS_CONNECTED:
            self._sent_before = self._kernel.log.end_offset()
        state = self._kernel.log.delivery_state(self.record.party)
        self._unreleased = unreleased(state) if state else b""
        self._stand()

    def known_as(self, bridge: Bridge) -> str:
        """The client identifier under which the remote keeps its session."""
        is_given = self.record.given_to == caller(bridge)
        return self.record.given if is_given else bridge.identifier

    def is_new_to_remote(self) -> bool:
        """True if no session under the bridge's client identifier is this queue's. One that a
        remote has nevertheless is not to be resumed: it has packet identifiers that mean other
        messages, and would hand on none that comes under one of them (MQTT 5 section 4.1). Before
        MQTT 5 whoever begins anew cannot have a session that lasts, so there it is."""
        is_begun = self.record.session_of is not None
        is_other = is_begun and not self.is_known_to_remote()
        return is_other and self._bridge.mqtt_version == 5

    def is_known_to_remote(self) -> bool:
        """True if a session under the bridge's client identifier was this queue's on the latest
        connection: the remote still has it, unless it has forgotten it."""
        session_of = self.record.session_of
        return session_of is not None and is_named(self._bridge, session_of)

    def connected(
        self,
        connection: int,
        granted: Granted,
        client_identifier: str,
        now_us: int,
        *,
        is_alone: bool = False,
    ) -> bytes:
        """The remote has accepted it under this name: what waits goes to this connection, or one
        message at a time alone, and nothing of QoS 0 and nothing that is driven again. Returns the
        packet identifiers of messages that came from it and that it has not released."""
        place = self._connection
        self._rest(now_us)
        if not granted.session_present:
            self._forget_session(now_us)
        elif granted.maximum_qos == 1:
            self._lower(now_us)
        if granted.maximum_qos == 0:
            # At QoS 0 nothing is read from the log; what comes from now on is sent as it comes.
            self._queues.lose_waiting(self.record, LossReason.REFUSED, now_us)
        self._kernel.outboxes.open(
            connection,
            protocol_version=self._bridge.mqtt_version,
            maximum_packet_size_bytes=granted.maximum_packet_size_bytes,
            topic_alias_maximum=granted.topic_alias_maximum,
            party=self.record.party,
        )
        self._carry(place, connection)
        self._kernel.outboxes.close(place)
        self._connections.free(place)
        found = within(self.record.reads, granted)
        receive_maximum = 1 if is_alone else granted.receive_maximum
        self._attach(connection, found, receive_maximum, self._queues.at_rest(self.record))
        self.is_connected = True
        if is_alone:
            self.hold(True)
        self._redrives.grant(self.record.party, self._grant)
        is_given = client_identifier != self._bridge.identifier
        given_to = caller(self._bridge) if is_given else ""
        given = client_identifier if is_given else ""
        held = replace(self.record, held_as=HELD_AS_CONNECTED, session_of=caller(self._bridge))
        self._note(replace(held, given_to=given_to, given=given), now_us)
        self._weigh(None if is_alone else taken(granted))
        return self._unreleased

    def lost(self, now_us: int) -> None:
        """The connection is about to be closed: the queue goes back to its own place."""
        connection = self._connection
        # What an earlier life may have sent is not all in flight again: it stays on record.
        is_known = self.mark() >= self._sent_before
        self._rest(now_us)
        self._redrives.detach(connection, now_us)
        self.is_connected, self._terms = False, None
        if is_known:
            self._note(replace(self.record, held_as=""), now_us)
        self._stand(connection)

    def end(self, now_us: int) -> None:
        """Is attached nowhere any more; what waits on the shelf is lost, and on record as that."""
        assert not self.is_connected, "its connection ends first"
        place = self._connection
        if shelved := self.shelved()[0]:
            who, left = (self.record.owner, self.record.party), Cut(ranges=[], count=shelved)
            self._queues.lose(*who, LossReason.SESSION_ENDED, left, now_us)
        self._rest(now_us)
        self._kernel.outboxes.close(place)
        self._connections.free(place)

    def shelved(self) -> tuple[int, int]:
        """Messages of QoS 0 that wait, and the bytes that they take."""
        return self._kernel.outboxes.shelved(self._connection)

    def unsent_bytes(self) -> int:
        """Bytes that wait for the socket of its connection."""
        return self._kernel.outboxes.waiting_bytes(self._connection)

    def takers(self) -> dict[int, Subscription | None]:
        """On which connection it takes what is driven again."""
        return {} if self._terms is None else {self._connection: self._terms}

    def carried(self) -> Carried:
        """What has come and gone since `begin`."""
        return Carried(*self._kernel.outboxes.carried(self._connection))

    def stored(self, begin: int, end: int, inquiry: Inquiry) -> Pieces[int]:
        """How many messages of QoS 1 and 2 have come between two offsets, with those that it leaves
        out."""
        return inquiry.count(self.record.reads, self.record.party, begin, end)

    def acknowledged(self) -> int:
        """Messages that the remote has acknowledged since `begin`."""
        return self._acknowledged_before + self._kernel.deliveries.acknowledged(self._queue)

    def polled_to(self) -> int:
        """Below which offset everything has been read."""
        return self._kernel.deliveries.polled_to(self._queue)

    def state(self) -> bytes:
        """The delivery state as it is now."""
        return self._kernel.deliveries.party_state(self._connection, self._unreleased)

    def give(self, is_giving: bool) -> None:
        """Whether what is read from the log goes out."""
        self._kernel.deliveries.set_writable(self._connection, is_giving)

    def hold(self, is_held: bool) -> None:
        """Whether messages of QoS 0 wait on the shelf, although the remote takes them."""
        self._kernel.outboxes.hold(self._connection, is_held)

    def is_noted(self) -> bool:
        """True once it is durable that it is connected, and under which name, so that a crash
        cannot forget it."""
        return self._kernel.log.durable_position() >= self._noted_at

    def is_ready(self) -> bool:
        """True once that is so, and it has no more than its limit."""
        return self._weighing is None and self.is_noted()

    def asks(self, filters: Iterable[str], now_us: int) -> None:
        """The remote's session may have subscriptions to these, and has no others."""
        self._note(replace(self.record, asked=tuple(dict.fromkeys(filters))), now_us)

    def refuse(self, offset: int) -> None:
        """What is in flight at this offset counts as refused by the remote, which is away."""
        for flight in describe_state(self.state())["in_flight"]:
            if flight["offset"] == offset:
                its = (self._connection, flight["packet_identifier"])
                self._kernel.deliveries.refuse(*its, NoticeKind.REFUSED)

    def free_identifier(self) -> int:
        """A packet identifier that nothing in flight has."""
        in_flight = describe_state(self.state())["in_flight"]
        taken = {flight["packet_identifier"] for flight in in_flight}
        return next(
            number for number in range(PACKET_IDENTIFIER_MAXIMUM, 0, -1) if number not in taken
        )

    def in_flight(self) -> int:
        """Messages that the remote has not acknowledged."""
        return self._kernel.deliveries.in_flight(self._queue)

    def sent_at_us(self) -> dict[int, int]:
        """When messages in flight were sent last, by offset: those that were on this connection."""
        return {
            offset: at_us for offset, at_us in self._kernel.deliveries.sent(self._queue) if at_us
        }

    def completing(self) -> tuple[int, ...]:
        """Offsets below the mark of messages in flight: the remote has them (PUBREC), and has not
        said that it is done with them (PUBCOMP)."""
        mark = self.mark()
        return tuple(
            offset for offset, _ in self._kernel.deliveries.sent(self._queue) if offset < mark
        )

    def oldest_in_flight(self) -> int | None:
        """The first offset of what the remote has not said to have."""
        mark = self.mark()
        sent = self._kernel.deliveries.sent(self._queue)
        return min((offset for offset, _ in sent if offset >= mark), default=None)

    def mark(self) -> int:
        """Below which offset the remote has said to have all."""
        return self._kernel.deliveries.mark(self._queue)

    def _stand(self, before: int | None = None) -> None:
        place = self._connections.reserve()
        outboxes = self._kernel.outboxes
        outboxes.open(
            place,
            protocol_version=5,
            maximum_packet_size_bytes=PACKET_SIZE_BYTES_MAXIMUM,
            topic_alias_maximum=0,
            party=self.record.party,
        )
        outboxes.set_writable(place, False)
        self._carry(before, place)
        at_rest = self._queues.at_rest(self.record)
        self._attach(place, self.record.reads, RECEIVE_MAXIMUM_DEFAULT, at_rest)
        self.give(False)
        self._weigh(None)

    def _carry(self, before: int | None, connection: int) -> None:
        outboxes = self._kernel.outboxes
        maximum = self._shelf_bytes_maximum
        outboxes.carry(connection, self._rewriting, shelf_bytes_maximum=maximum)
        if before is not None:
            outboxes.hand_over(before, connection)

    def _weigh(self, terms: Subscription | None) -> None:
        """Begins to count what it has beyond its limit; then that is cut off, and if there are
        terms for it, it takes what is driven again."""
        self._weighing = self._weighed(terms)
        self._chores.start(self._weighing, lambda _nothing: None)

    def _weighed(self, terms: Subscription | None) -> Pieces[None]:
        while True:
            state = self.state()
            prepared = yield from self._queues.prepare(self.record, self._clock_us(), state)
            # Nothing is sent meanwhile, but it reads on past what nobody wants, and retention may
            # take some of it.
            if self.state() == state:
                break
        self._weighing = None
        if prepared.lost:
            self._cut(prepared, self._clock_us())
        self._terms = terms
        if terms is not None:
            self._redrives.join(self.record.party, self._connection, terms)
        # Its link finds it ready in the turn that follows.
        yield None

    def _cut(self, prepared: Prepared, now_us: int) -> None:
        place = self._place
        self._rest(now_us)
        at_rest = self._queues.cut_on(self.record, prepared, now_us)
        self._attach(*place, at_rest)
        self.give(False)

    def _attach(
        self,
        connection: int,
        found: tuple[Subscription, ...],
        receive_maximum: int,
        at_rest: QueueAtRest,
    ) -> None:
        self._place = connection, found, receive_maximum
        party = self.record.party
        self._queue = self._kernel.deliveries.attach(
            connection,
            party=party,
            state=at_rest.state,
            subscriptions=found,
            # One packet identifier is left for what is asked of the remote.
            receive_maximum=min(receive_maximum, PACKET_IDENTIFIER_MAXIMUM - 1),
            mark=at_rest.mark,
            end_offset=self._kernel.log.end_offset(),
            entries_maximum=0,
            pack_maximum=0,
            sent_before=self._sent_before,
        )
        self._connection = connection
        self._queues.attach(party, self._queue)
        self._subscriptions.add(self._queue, connection, party, found)
        self._subscriptions.grant(self._queue, connection, None, self._grant)

    def _rest(self, now_us: int) -> None:
        party = self.record.party
        if self._weighing is not None:
            self._weighing.close()
            self._weighing = None
        if self.is_connected:
            self._unreleased = self._kernel.inbox.unreleased(self._connection)
        self._subscriptions.forget(self._queue, self._connection)
        self._acknowledged_before = self.acknowledged()
        state = self._kernel.deliveries.detach(self._connection, self._unreleased)
        self._queues.detach(party)
        self._queues.rest(party, state, now_us)

    def _forget_session(self, now_us: int) -> None:
        """What the remote has said to have is done; what it may have or not is sent as new. So is
        what another remote has said to have, or this one to a client of another name."""
        self._unreleased = b""
        self._sent_before = 0
        state = self._kernel.log.delivery_state(self.record.party)
        if not state:
            return
        told = describe_state(state)
        is_same = self.record.session_of in (None, caller(self._bridge))
        self._take_back(told, {"published"} if is_same else {"published", "received"}, now_us)
        mark, done = (told["mark"], _had(told)) if is_same else _finished(told)
        self._queues.begin(self.record.party, mark, done, now_us)

    def _lower(self, now_us: int) -> None:
        """The remote takes no QoS 2 any more: what it may have of that or not is sent as new at
        QoS 1, with all that is in flight, since one exchange cannot become another."""
        state = self._kernel.log.delivery_state(self.record.party)
        if not state:
            return
        told = describe_state(state)
        if any(each["qos"] == 2 and each["phase"] == "published" for each in told["in_flight"]):
            self._take_back(told, {"published"}, now_us)
            party, mark = self.record.party, told["mark"]
            self._queues.begin(party, mark, _had(told), now_us, self._unreleased)

    def _take_back(self, told: dict[str, Any], phases: set[str], now_us: int) -> None:
        """What re-drives had handed over, and is so far in this state, is driven again."""
        handed = [
            each["offset"]
            for each in told["in_flight"]
            if "group" in each and each["phase"] in phases
        ]
        if handed:
            target = Target(self.record.party, driven(self.record.reads), {}, self.record.rules)
            self._redrives.take_back(self.record.owner, target, handed, now_us)

    def _note(self, record: QueueRecord, now_us: int) -> None:
        if record != self.record:
            self.record = record
            self._noted_at = self._queues.put(record, now_us)


def _had(told: dict[str, Any]) -> list[tuple[int, int]]:
    """Ranges of offsets that the remote has said to have, in a state that is told so."""
    received = (each["offset"] for each in told["in_flight"] if each["phase"] == "received")
    acknowledged = [(first, end) for first, end in told["acknowledged"]]
    return acknowledged + [(offset, offset + 1) for offset in received]


def _finished(told: dict[str, Any]) -> tuple[int, list[tuple[int, int]]]:
    """A mark, and ranges above it, of what a remote has acknowledged to the end: a state has its
    mark behind what the remote has said to have."""
    own = (each for each in told["in_flight"] if "group" not in each)
    received = sorted(each["offset"] for each in own if each["phase"] == "received")
    mark = min([told["mark"], *received])
    begun = RangeSet([(offset, offset + 1) for offset in received])
    return mark, [*told["acknowledged"], *begun.gaps(mark, told["mark"])]


def new_queue(
    name: str, bridge: Bridge, parties: Parties, queues: Queues, end_offset: int, now_us: int
) -> QueueRecord:
    """The record of a new bridge's queue, which begins at the end of the log."""
    record = QueueRecord(
        party=parties.durable(now_us),
        kind="bridge",
        owner=name,
        created_at_offset=end_offset,
        reads=reads(bridge, end_offset),
        rules=rules(bridge),
        messages_maximum=bridge.queue_limit,
        session_of="",
    )
    queues.begin(record.party, end_offset, [], now_us)
    queues.put(record, now_us)
    return record
