"""Sessions: who is attached to which connection, and what stays when a connection ends.

Owns: attached sessions and the session's control records. Never: closes a socket or
encodes a packet; it says which connection was displaced, and ingress tells it so.

Invariants:
1. A client identifier is attached to at most one connection. Taking it over is one step: delivery
   state, subscriptions and record pass on before anything else happens.
2. A persistent session's record is appended before its CONNACK may leave, and says `connected` for
   as long as it is: after a crash that is how we know whose connection ended with it.
3. A session that has ended leaves nothing but its Will, until that is published: record,
   subscriptions and delivery state are removed, and its party number is never given out again.

Flow: admission -> recall -> open -> (durable) -> prepare -> attach -> ... -> close.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from holdfast.broker.access.access import Identity
from holdfast.broker.chores import Pieces, at_once
from holdfast.broker.delivery.parties import BROKER_PARTY
from holdfast.broker.delivery.parts import DeliveryParts
from holdfast.broker.delivery.queue_at_rest import QueueAtRest, queue_at_rest
from holdfast.broker.delivery.queue_names import Owner
from holdfast.broker.delivery.queues import Left, Prepared
from holdfast.broker.delivery.redrives import Target
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.mqtt import session_records
from holdfast.broker.mqtt.attached import Attached, Opened, is_durable
from holdfast.broker.mqtt.session import Session, new_session, own_queue, rest, resume
from holdfast.broker.mqtt.subscription_records import (
    NOTHING_RECALLED,
    Recalled,
    SubscriptionRecords,
)
from holdfast.broker.mqtt.subscriptions import Subscriptions
from holdfast.broker.mqtt.will_records import SWEEP_WILLS_MAXIMUM, WillRecords, due_will
from holdfast.broker.mqtt.wills import DueWill, Wills
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Table
from holdfast.broker.store.view import View
from holdfast.core.config import Config
from holdfast.core.held_subscriptions import NOTHING_HELD, HeldSubscriptions
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import Subscription, own_of
from holdfast.kernel import unreleased
from holdfast.protocols.mqtt.handshake import Opening
from holdfast.protocols.mqtt.will import Ending, plan_will, waits_for_restart

log = logging.getLogger(__name__)
EXPIRED: Final = FrequentEvent(log, "session expired")

PIECE_SESSIONS_MAXIMUM = 20
"""Sessions whose record is read and written in one piece: each takes some 50 us."""
ENDS_IN_A_PIECE = 10
"""Sessions cleared away in one piece; fewer where counting what they leave behind takes long."""


class Sessions:
    """All sessions: attached ones here, those at rest in the control records."""

    def __init__(
        self,
        config: Config,
        kernel: KernelStages,
        records: ControlRecords,
        wills: Wills,
        delivery: DeliveryParts,
    ) -> None:
        self._records = records
        self._log = kernel.log
        self._inbox = kernel.inbox
        self._deliveries = kernel.deliveries
        self._subscriptions = Subscriptions(kernel)
        self._wills = wills
        self._will_records = WillRecords(records, wills)
        self._subscribed = SubscriptionRecords(records, delivery.queues, delivery.groups)
        self._by_client: dict[str, Attached] = {}
        self._by_connection: dict[int, Attached] = {}
        self._by_party: dict[int, Attached] = {}
        self._parties = delivery.parties
        self._queues = delivery.queues
        self._groups = delivery.groups
        self._names = delivery.queue_names
        self._redrives = delivery.redrives
        self._recorded = records.refresh().session_count()
        self._recorded_attached = 0
        self._recovered_at_us: int | None = None
        """When this life began, until all records know it, and where the log ended then."""
        self._recovered_end = 0
        self.expired = 0
        """How many sessions have been cleared away because their time was over."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Holds to these limits whatever attaches from now on."""
        self._config = config

    def of(self, connection: int) -> Attached | None:
        """The session that a connection holds."""
        return self._by_connection.get(connection)

    def count(self) -> int:
        """How many sessions are attached."""
        return len(self._by_client)

    def recorded(self) -> int:
        """How many sessions are on record: those that are kept, attached or at rest."""
        return self._recorded

    def recorded_attached(self) -> int:
        """How many of those are attached."""
        return self._recorded_attached

    def has_room_for(self, opening: Opening) -> bool:
        """False if it would be one more session than are kept."""
        if opening.terms.expiry_s == 0 or self._recorded < self._config.sessions_maximum:
            return True
        return self._known(opening.client_identifier) is not None

    def keep_up(self) -> bool:
        """False while sessions are written faster than they can be looked up."""
        return self._records.has_room()

    def name_of(self, party: int) -> str:
        """The client identifier of a party, or its name if it is a group; empty for one that has
        gone."""
        attached = self._by_party.get(party)
        if attached is not None:
            return attached.session.client_identifier
        known = self._groups.name_of(party) or self._records.refresh().client_of(party)
        return known or self._name_ahead(party)

    def owner(self, client_identifier: str, now_us: int) -> str | None:
        """Whose session this client identifier has; `None` if it has none that a client could come
        back to, or one that was opened without a credential."""
        attached = self._by_client.get(client_identifier)
        session = self._known(client_identifier) if attached is None else attached.session
        return None if session is None or session.expired(now_us) else session.user_name

    def is_on_record(self, client_identifier: str) -> bool:
        """False if there is nothing for `recall` to find out."""
        if not self._recorded:
            # A fleet of clean sessions need not be looked up one by one.
            return False
        return bool(self._records.get(Table.SESSIONS, client_identifier.encode()))

    def recall(self, opening: Opening, now_us: int) -> Pieces[Recalled]:
        """What `open` needs of the client's session on record and may take long to find out."""
        known = self._known(opening.client_identifier)
        if known is None:
            return NOTHING_RECALLED
        if not (opening.terms.clean_start or known.expired(now_us)):
            return Recalled((yield from self._subscribed.read(known)), None)
        if opening.client_identifier in self._by_client:
            return NOTHING_RECALLED
        return Recalled(None, (yield from self.left(known)))

    def open(
        self,
        opening: Opening,
        identity: Identity,
        connection: int,
        recalled: Recalled,
        now_us: int,
    ) -> Opened:
        """Gives the connection its session: resumed, or new. Nothing is delivered yet."""
        began = self._log.end_position()
        client = opening.client_identifier
        displaced = self._by_client.get(client)
        if displaced is not None:
            goes_on = displaced.session.persistent and not opening.terms.clean_start
            self.close(displaced, Ending.RESUMED if goes_on else Ending.DISCARDED, now_us)
        known = self._known(client)
        if known is not None and (opening.terms.clean_start or known.expired(now_us)):
            self.end(known, now_us, recalled.left)
            known = None
        if known is None:
            session = self._new_session(opening, identity, now_us)
            self._recorded += is_durable(session)
        else:
            session = self._resumed(known, opening, identity, now_us)
            self._subscribed.renew(session, now_us)
        session = self._named(session)
        held = NOTHING_HELD
        if known is not None:
            held = self._subscribed.held(session, recalled.recorded)
            if session.queue_name != known.queue_name:
                self._queues.put(own_queue(session, held.reads()), now_us)
        attached = Attached(session, held, held, connection, opening, identity)
        self._by_client[client] = attached
        self._by_connection[connection] = attached
        self._by_party[session.party] = attached
        if is_durable(session):
            self._recorded_attached += 1
            self._put(session, now_us)
        end = self._log.end_position()
        if not is_durable(session):
            # CONNACK does not wait for it: a Will is no reason for a commit of its own.
            self._will_records.put_connected(attached, now_us)
        return Opened(attached, known is not None, displaced, end if end > began else None)

    def prepare(self, attached: Attached, now_us: int) -> Pieces[Prepared | None]:
        """Finds out what its queues have to lose before it gets the rest; changes nothing. `None`
        for a session whose own queue reads nothing, as that of most who connect."""
        own, prepared = attached.held.reads(), None
        if own:
            record = own_queue(attached.session, own)
            prepared = yield from self._queues.prepare(record, now_us)
        for group in attached.held.shared:
            yield from self._groups.prepare(group, now_us)
        return prepared

    def attach(self, attached: Attached, prepared: Prepared | None, now_us: int) -> bytes:
        """From now on the session gets messages; returns the QoS 2 packet identifiers it has sent
        and not released."""
        session = attached.session
        own, shared = attached.held.reads(), tuple(attached.held.shared.values())
        queue = self._own_queue(session, own, prepared, now_us)
        if queue.subscriptions != own:
            kept = NOTHING_HELD.joined_by((*queue.subscriptions, *shared))
            self.resubscribe(attached, replace(kept, shared=attached.held.shared), now_us)
            self.record(attached, now_us)
        attached.queue = self._deliveries.attach(
            attached.connection,
            party=session.party,
            state=queue.state,
            subscriptions=queue.subscriptions,
            receive_maximum=attached.opening.terms.receive_maximum,
            mark=queue.mark,
            end_offset=self._log.end_offset(),
            entries_maximum=0 if is_durable(session) else self._config.slow_reader_messages_maximum,
            pack_maximum=(
                self._config.application_pack_messages_maximum if session.application else 0
            ),
            sent_before=session.sent_before_offset,
        )
        self._queues.attach(session.party, attached.queue)
        if queue.subscriptions:
            self._subscriptions.add(
                attached.queue, attached.connection, session.party, queue.subscriptions
            )
        self._groups.attach(attached.connection, session, shared, now_us)
        self._redrives.join(session.party, attached.connection, None)
        return unreleased(queue.state) if queue.state else b""

    def _own_queue(
        self,
        session: Session,
        own: tuple[Subscription, ...],
        prepared: Prepared | None,
        now_us: int,
    ) -> QueueAtRest:
        """What there is to get for a session that reads this."""
        if not own:
            # Nothing waits, so nothing has to be asked, and nothing can be lost.
            return queue_at_rest(self._log, session.party, session.created_at_offset, own)
        if prepared is None or prepared.record.reads != own:
            # It has changed while the queue was looked at; nothing else of it has.
            record = own_queue(session, own)
        else:
            record = prepared.record
        return self._queues.cut(record, session.client_identifier, prepared, now_us)

    def resubscribe(self, attached: Attached, held: HeldSubscriptions, now_us: int) -> None:
        """The session has these subscriptions now; the next `record` puts them on record."""
        before = attached.held
        if held is not before and attached.queue is not None:
            # Who ends with the connection reads nothing again, so nothing past matters to it.
            durable = is_durable(attached.session)
            mark = self._deliveries.mark(attached.queue) if durable else self._log.end_offset()
            held = held.without_past(mark)
            self._subscriptions.read_by(attached.queue, before.reads(), held.reads())
            if held.shared is not before.shared:
                self._regroup(attached, held.shared, now_us)
        attached.held = held

    def record(self, attached: Attached, now_us: int) -> int | None:
        """What the session holds is on record; returns the log position at which that is durable,
        or `None` if it ends with its connection."""
        return self._subscribed.put(attached, now_us) if is_durable(attached.session) else None

    def keep_for(self, attached: Attached, expiry_s: int | None) -> None:
        """DISCONNECT asked for another Session Expiry Interval."""
        if attached.session.persistent or expiry_s == 0:
            attached.session = replace(attached.session, expiry_s=expiry_s)

    def identify(self, attached: Attached, now_us: int, *, identified: bool) -> None:
        """Its client has asked to be told which message each delivery is, or not to be."""
        attached.session = replace(attached.session, identified=identified)
        if is_durable(attached.session):
            attached.changed_at = self._put(attached.session, now_us)

    def drop_will(self, attached: Attached, now_us: int) -> None:
        """The Will is not published any more, however the connection ends."""
        attached.session = replace(attached.session, will=None)
        if is_durable(attached.session):
            self._put(attached.session, now_us)
        self._will_records.end_connected(attached, None, now_us)

    def close(self, attached: Attached, ending: Ending, now_us: int) -> None:
        """The connection has ended so; the session goes to rest, or ends."""
        session = attached.session
        del self._by_client[session.client_identifier]
        del self._by_connection[attached.connection]
        del self._by_party[session.party]
        self._recorded_attached -= is_durable(session)
        if attached.queue is not None:
            # A SUBSCRIBE may have been carried out in part.
            self.record(attached, now_us)
            self._subscriptions.forget(attached.queue, attached.connection)
            not_released = self._inbox.unreleased(attached.connection)
            state = self._deliveries.detach(attached.connection, not_released)
            self._queues.detach(session.party)
            self._groups.detach(attached.connection, now_us)
            self._redrives.detach(attached.connection, now_us)
            if is_durable(session):
                self._queues.rest(session.party, state, now_us)
        if waits_for_restart(session.will, session.expiry_s, ending):
            # Its record goes on saying that it is connected, and `recover` does the rest.
            return
        will_due_at_us = plan_will(session.will, session.expiry_s, ending, now_us)
        if not is_durable(session):
            self._groups.leave(None, session.party, list(attached.held.shared), now_us)
            self._redrives.end(session.party, now_us)
            self._will_records.end_connected(attached, will_due_at_us, now_us)
            return
        session = rest(session, will_due_at_us=will_due_at_us, now_us=now_us)
        if session.persistent and ending is not Ending.DISCARDED:
            self._put(session, now_us)
            self._publish_if_due(session, now_us)
        else:
            self.end(session, now_us)

    def end(self, session: Session, now_us: int, left: Left | None = None) -> None:
        """Removes everything that a session at rest has (S2.14). A Will that was still to come is
        published now: it does not outlive its session. `left` says what is lost, where it has been
        counted."""
        self._will_records.owe_apart(session, now_us)
        self._names.release(session.queue_name)
        groups = [item.topic_filter for item in self._subscribed.shared(session)]
        if left is None or left.party != session.party:
            left = at_once(self.left(session))
        if left.cut is not None:
            who = (session.client_identifier, session.party)
            self._queues.lose(*who, LossReason.SESSION_ENDED, left.cut, now_us)
        self._groups.end_handed(session, now_us)
        self._subscribed.end(session, now_us)
        self._groups.leave(None, session.party, groups, now_us)
        self._redrives.end(session.party, now_us)
        self._queues.end(session.party, now_us)
        key = session.client_identifier.encode()
        if self._records.get(Table.SESSIONS, key):
            self._recorded -= 1
            self._records.put(Table.SESSIONS, key, b"", now_us)

    def recover(self, now_us: int) -> None:
        """The broker has ended, which ended the connections of all sessions: whoever looks one up
        finds it at rest since now, whatever its record says; `write_recovered` writes that down.
        Wills of sessions that had ended before are published by the first sweep."""
        for name, client in self._records.refresh().named_queues():
            self._names.take(name, Owner("application", client))
        self._recovered_at_us, self._recovered_end = now_us, self._log.end_offset()

    def write_recovered(self, clock_us: Callable[[], int]) -> Pieces[int]:
        """Sessions that were connected when the broker ended go to rest on record, in pieces;
        returns how many. No Will waits longer than its delay."""
        yield from self._plan_wills_anew(clock_us)
        count, after = 0, b""
        while keys := self._records.refresh().connected(after, PIECE_SESSIONS_MAXIMUM):
            after = keys[-1]
            for key in keys:
                # The view may be behind, and its client may have come back in the meantime.
                session = self._on_record(key.decode())
                if session is not None and self._was_left(session):
                    self._put(self._rested(session), clock_us())
                    count += 1
            yield self._records.is_near
        self._recovered_at_us = None
        yield from self._will_records.owe_left(self._will_number_of, self._party_of, clock_us)
        return count

    def renew_records(self, clock_us: Callable[[], int]) -> Pieces[None]:
        """What former versions have on record is written anew, in pieces."""
        yield from self._subscribed.renew_all(self._on_record, clock_us)

    def are_renewed(self) -> bool:
        """True once that is done."""
        return self._subscribed.are_renewed

    def subscriptions(self, session: Session) -> tuple[Subscription, ...]:
        """What a session on record subscribes to."""
        return self._subscribed.of(session)

    def sweep(self, now_us: int) -> None:
        """Wills that are due: those of sessions that have expired among them."""
        self._wills.sweep(self._wills_on_record(self._records.refresh(), now_us))

    def clear_expired(self, expired_by_us: int, clock_us: Callable[[], int]) -> Pieces[None]:
        """Removes what sessions have that had expired by then, in pieces."""
        inquiry, after_us, after = Inquiry(self._log), 0, b""
        while rows := self._records.refresh().expired(
            expired_by_us, after_us, after, ENDS_IN_A_PIECE
        ):
            after, after_us, _ = rows[-1]
            for key, _, _ in rows:
                # The view may be behind: its client may have come back in the meantime.
                known = self._known(key.decode())
                if known is None or not known.expired(expired_by_us):
                    continue
                left = yield from self.left(known, inquiry)
                # Or while it was counted.
                if self._known(key.decode()) == known:
                    self.end(known, clock_us(), left)
                    self.expired += 1
                    if EXPIRED.is_due(clock_us()):
                        EXPIRED.write({"client_identifier": known.client_identifier})
            yield self._records.is_near

    def left(self, session: Session, inquiry: Inquiry | None = None) -> Pieces[Left]:
        """What is lost if a session at rest ends."""
        recorded = yield from self._subscribed.read(session)
        queue = own_queue(session, recorded.held.reads())
        asking = inquiry or Inquiry(self._log)
        return (yield from self._queues.left(queue, session.expires_at_us, asking))

    def will_appended(self, client_identifier: str, due_at_us: int, now_us: int) -> None:
        """The Will is in the log and comes off the record: its session's, unless that has changed,
        or its own, if its session has ended."""
        self._will_records.take_off(client_identifier, due_at_us, now_us)
        known = self._known(client_identifier)
        if known is not None and known.will_due_at_us == due_at_us:
            self._put(replace(known, will=None, will_due_at_us=None), now_us)

    def attached(self, client_identifier: str) -> Attached | None:
        """The session of a client that is connected."""
        return self._by_client.get(client_identifier)

    def on_record(self, client_identifier: str) -> Session | None:
        """The session of a client as it is on record; none if it ends with its connection."""
        return self._known(client_identifier)

    def target(self, client_identifier: str) -> Target | None:
        """The session of a client as one whose losses can be driven again."""
        attached = self._by_client.get(client_identifier)
        if attached is not None:
            takes = attached.queue is not None
            takers: dict[int, Subscription | None] = {attached.connection: None} if takes else {}
            return Target(attached.session.party, attached.held.reads(), takers)
        session = self._known(client_identifier)
        if session is None:
            return None
        return Target(session.party, own_of(self._subscribed.of(session)), {})

    def all_attached(self) -> list[Attached]:
        """Every attached session."""
        return list(self._by_client.values())

    def clients(self) -> list[str]:
        """The client identifier of every attached session."""
        return list(self._by_client)

    def _wills_on_record(self, view: View, now_us: int) -> Iterator[DueWill]:
        """Those that are due, as far as a view that may be behind tells of them."""
        for value in view.wills_due(now_us, SWEEP_WILLS_MAXIMUM):
            session = self._known(session_records.parse_session(value).client_identifier)
            due = None if session is None else due_will(session)
            if due is not None and due.due_at_us <= now_us:
                yield due
        yield from self._will_records.due(self._party_of)

    def _plan_wills_anew(self, clock_us: Callable[[], int]) -> Pieces[None]:
        """A Will that is due later than its delay from now was planned by a clock that has been set
        back since; its delay counts from now."""
        after_us, after = clock_us(), b""
        while rows := self._records.refresh().wills_to_come(
            after_us, after, PIECE_SESSIONS_MAXIMUM
        ):
            for key, due_at_us, _ in rows:
                after_us, after = due_at_us, key
                session, now_us = self._on_record(key.decode()), clock_us()
                if session is None or session.will_due_at_us != due_at_us:
                    continue
                latest_us = plan_will(session.will, session.expiry_s, Ending.ABNORMAL, now_us)
                if latest_us is not None and due_at_us > latest_us:
                    self._put(replace(session, will_due_at_us=latest_us), now_us)
            yield self._records.is_near

    def _name_ahead(self, party: int) -> str:
        """The same of a session that the view does not know yet."""
        digits = str(party).encode()
        for value in self._records.ahead(Table.SESSIONS):
            if digits in value and (session := session_records.parse_session(value)).party == party:
                return session.client_identifier
        return ""

    def _was_left(self, session: Session) -> bool:
        """True if its record says that it is connected, and it was in a former life."""
        left = self._recovered_at_us is not None and session.connected
        return left and session.client_identifier not in self._by_client

    def _rested(self, session: Session) -> Session:
        """A session that was left connected: its expiry and Will Delay count from the recovery."""
        assert self._recovered_at_us is not None, "nobody else is left"
        due_at_us = plan_will(
            session.will, session.expiry_s, Ending.ABNORMAL, self._recovered_at_us
        )
        rested = rest(session, will_due_at_us=due_at_us, now_us=self._recovered_at_us)
        return replace(rested, sent_before_offset=self._recovered_end)

    def _publish_if_due(self, session: Session, now_us: int) -> None:
        due = due_will(session)
        if due is not None and due.due_at_us <= now_us:
            self._wills.owe(due)

    def _will_number_of(self, client: str) -> int | None:
        attached = self._by_client.get(client)
        return None if attached is None else attached.will_number

    def _party_of(self, client: str) -> int:
        attached = self._by_client.get(client)
        session = self._known(client) if attached is None else attached.session
        return BROKER_PARTY if session is None else session.party

    def _known(self, client: str) -> Session | None:
        session = self._on_record(client)
        return self._rested(session) if session is not None and self._was_left(session) else session

    def _on_record(self, client: str) -> Session | None:
        if not self._recorded:
            return None
        value = self._records.get(Table.SESSIONS, client.encode())
        return session_records.parse_session(value) if value else None

    def _new_session(self, opening: Opening, identity: Identity, now_us: int) -> Session:
        durable = opening.terms.expiry_s != 0
        party = self._parties.durable(now_us) if durable else self._parties.transient()
        return new_session(opening, identity, party, self._log.end_offset(), now_us)

    def _resumed(
        self, known: Session, opening: Opening, identity: Identity, now_us: int
    ) -> Session:
        if known.client_type != identity.client_type:
            fields = {
                "client_identifier": known.client_identifier,
                "was": known.client_type,
                "is": identity.client_type,
            }
            log.warning("client type changed", extra={"fields": fields})
        # A Will whose time came before this connection is published; one that was still to come is
        # not [MQTT-3.1.3-9].
        if known.will_due_at_us is not None and known.will_due_at_us <= now_us:
            self._will_records.owe_apart(known, now_us)
        return resume(known, opening, identity)

    def _named(self, session: Session) -> Session:
        """The session with the name of its queue, if it has one of its own (S0.6 to S0.13)."""
        name = session.queue_name
        if not session.application:
            self._names.release(name)
            name = None
        elif name is None:
            name = self._names.of_client(session.client_identifier)
        return session if name == session.queue_name else replace(session, queue_name=name)

    def _regroup(self, attached: Attached, shared: Mapping[str, Subscription], now_us: int) -> None:
        """The attached session is a member of the groups that these name, and of no others."""
        party, before = attached.session.party, attached.held.shared
        gone = [group for group in before if group not in shared]
        self._groups.leave(attached.connection, party, gone, now_us)
        new = [item for group, item in shared.items() if before.get(group) != item]
        self._groups.attach(attached.connection, attached.session, new, now_us)

    def _put(self, session: Session, now_us: int) -> int:
        key = session.client_identifier.encode()
        return self._records.put(
            Table.SESSIONS, key, session_records.format_session(session), now_us
        )
