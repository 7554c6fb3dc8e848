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

Flow: admission -> open -> (durable) -> attach -> ... -> close.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast.broker.access.access import Identity
from holdfast.broker.dispatch.groups import Groups
from holdfast.broker.dispatch.losses import Losses, loss_of
from holdfast.broker.dispatch.parties import Parties
from holdfast.broker.dispatch.queue_names import Owner, QueueNames
from holdfast.broker.dispatch.queues import (
    Cut,
    OldestKept,
    QueueAtRest,
    cut_to_age,
    cut_to_limit,
    left_behind,
    put_cut,
    queue_at_rest,
)
from holdfast.broker.dispatch.redrives import Redrives, Target
from holdfast.broker.dispatch.wills import DueWill, Wills
from holdfast.broker.route.subscriptions import Subscriptions
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.queue_retention import NamedQueue, kept_from
from holdfast.broker.store.tables import (
    DELIVERY_STATE_REMOVED,
    Table,
    format_session,
    format_subscriptions,
    format_will,
    parse_session,
    parse_subscriptions,
    parse_will,
    parse_will_key,
    party_key,
    will_key,
)
from holdfast.broker.store.view import View
from holdfast.core.config import Config
from holdfast.kernel import TRANSIENT_PARTY, received
from holdfast.protocols.mqtt.handshake import Opening
from holdfast.protocols.mqtt.session import Session, Subscription, own_of, rest, shared_of
from holdfast.protocols.mqtt.subscribe import without_past
from holdfast.protocols.mqtt.will import Ending, plan_will, waits_for_restart

log = logging.getLogger(__name__)

SWEEP_SESSIONS_MAXIMUM = 1_000
"""Sessions cleared away, or Wills found due, in one sweep; the next one goes on."""


@dataclass(slots=True)
class Attached:
    """A session and the connection that holds it."""

    session: Session
    subscriptions: tuple[Subscription, ...]
    connection: int
    opening: Opening
    identity: Identity
    queue: int | None = None
    """The kernel's queue, once CONNACK may leave; until then nothing is delivered."""


@dataclass(slots=True)
class Opened:
    """The outcome of a CONNECT that is accepted."""

    attached: Attached
    session_present: bool
    displaced: Attached | None
    """The connection that held the session before, to be told and closed."""
    position: int | None
    """CONNACK waits for the log to be durable up to here; `None`: it waits for nothing."""


class Sessions:
    """All sessions: attached ones here, those at rest in the control records."""

    def __init__(
        self,
        config: Config,
        kernel: KernelStages,
        records: ControlRecords,
        losses: Losses,
        wills: Wills,
        parties: Parties,
        groups: Groups,
        names: QueueNames,
        redrives: Redrives,
    ) -> None:
        self._records = records
        self._log = kernel.log
        self._inbox = kernel.inbox
        self._dispatch = kernel.dispatch
        self._subscriptions = Subscriptions(kernel)
        self._losses = losses
        self._wills = wills
        self._by_client: dict[str, Attached] = {}
        self._by_connection: dict[int, Attached] = {}
        self._by_party: dict[int, Attached] = {}
        self._parties = parties
        self._groups = groups
        self._names = names
        self._redrives = redrives
        self._oldest = OldestKept(kernel.log)
        self._recorded = records.refresh().session_count()
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

    def has_room_for(self, opening: Opening) -> bool:
        """False if it would be one more session than are kept."""
        if opening.expiry_s == 0 or self._recorded < self._config.sessions_maximum:
            return True
        return self._known(opening.client_identifier) is not None

    def name_of(self, party: int) -> str:
        """The client identifier of a party, or its name if it is a group; empty for one that has
        gone."""
        attached = self._by_party.get(party)
        if attached is not None:
            return attached.session.client_identifier
        return self._groups.name_of(party) or self._records.refresh().client_of(party)

    def attached_mark(self, party: int) -> int | None:
        """Below which offset an attached session has acknowledged all; `None` for one at rest."""
        attached = self._by_party.get(party)
        if attached is None or attached.queue is None:
            return None
        return self._dispatch.mark(attached.queue)

    def owner(self, client_identifier: str, now_us: int) -> str | None:
        """Whose session this client identifier has; `None` if it has none that a client could come
        back to, or one that was opened without a credential."""
        attached = self._by_client.get(client_identifier)
        session = self._known(client_identifier) if attached is None else attached.session
        return None if session is None or session.expired(now_us) else session.user_name

    def open(self, opening: Opening, identity: Identity, connection: int, now_us: int) -> Opened:
        """Gives the connection its session: resumed, or new. Nothing is delivered yet."""
        began = self._log.end_position()
        client = opening.client_identifier
        displaced = self._by_client.get(client)
        if displaced is not None:
            goes_on = displaced.session.persistent and not opening.clean_start
            self.close(displaced, Ending.RESUMED if goes_on else Ending.DISCARDED, now_us)
        known = self._known(client)
        if known is not None and (opening.clean_start or known.expired(now_us)):
            self.end(known, now_us)
            known = None
        if known is None:
            session = self._new_session(opening, identity, now_us)
            self._recorded += is_durable(session)
        else:
            session = self._resumed(known, opening, identity, now_us)
        session = self._named(session)
        subscriptions = () if known is None else self._subscriptions_of(session)
        attached = Attached(session, subscriptions, connection, opening, identity)
        self._by_client[client] = attached
        self._by_connection[connection] = attached
        self._by_party[session.party] = attached
        if is_durable(session):
            self._put(session, now_us)
        end = self._log.end_position()
        return Opened(attached, known is not None, displaced, end if end > began else None)

    def attach(self, attached: Attached, now_us: int) -> bytes:
        """From now on the session gets messages; returns the QoS 2 packet identifiers it has sent
        and not released."""
        session = attached.session
        opening = attached.opening
        own, shared = own_of(attached.subscriptions), shared_of(attached.subscriptions)
        queue = queue_at_rest(self._log, session, own)
        if is_durable(session):
            cut = self._cut_device if session.bounded else self._cut_named
            kept = cut(session, queue, now_us)
            if kept is not queue:
                put_cut(self._records, self._losses, session.party, kept, now_us)
            queue = kept
            if queue.subscriptions != own:
                self.resubscribe(attached, (*queue.subscriptions, *shared), now_us)
        attached.queue = self._dispatch.attach(
            attached.connection,
            party=session.party,
            state=queue.state,
            subscriptions=[item.table() for item in queue.subscriptions],
            receive_maximum=opening.receive_maximum,
            mark=queue.mark,
            end_offset=self._log.end_offset(),
            entries_maximum=0 if is_durable(session) else self._config.slow_reader_messages_maximum,
            pack_maximum=(
                self._config.application_pack_messages_maximum if session.application else 0
            ),
        )
        self._subscriptions.add(
            attached.queue, attached.connection, session.party, queue.subscriptions
        )
        self._groups.attach(attached.connection, session, shared, now_us)
        self._redrives.join(session.party, attached.connection, None)
        return received(queue.state) if queue.state else b""

    def resubscribe(
        self, attached: Attached, subscriptions: tuple[Subscription, ...], now_us: int
    ) -> int | None:
        """The session has these subscriptions now; returns the log position at which that is
        durable, or `None` if it ends with its connection."""
        durable = is_durable(attached.session)
        if attached.queue is not None:
            # Who ends with the connection reads nothing again, so nothing past matters to it.
            mark = self._dispatch.mark(attached.queue) if durable else self._log.end_offset()
            subscriptions = without_past(subscriptions, mark)
            self._subscriptions.read_by(attached.queue, own_of(subscriptions))
            self._regroup(attached, subscriptions, now_us)
        attached.subscriptions = subscriptions
        if not durable:
            return None
        key = attached.session.client_identifier.encode()
        value = format_subscriptions(subscriptions)
        return self._records.put(Table.SUBSCRIPTIONS, key, value, now_us)

    def keep_for(self, attached: Attached, expiry_s: int | None) -> None:
        """DISCONNECT asked for another Session Expiry Interval."""
        if attached.session.persistent or expiry_s == 0:
            attached.session = replace(attached.session, expiry_s=expiry_s)

    def drop_will(self, attached: Attached, now_us: int) -> None:
        """The Will is not published any more, however the connection ends."""
        attached.session = replace(attached.session, will=None)
        if is_durable(attached.session):
            self._put(attached.session, now_us)

    def close(self, attached: Attached, ending: Ending, now_us: int) -> None:
        """The connection has ended so; the session goes to rest, or ends."""
        session = attached.session
        del self._by_client[session.client_identifier]
        del self._by_connection[attached.connection]
        del self._by_party[session.party]
        if attached.queue is not None:
            self._subscriptions.forget(attached.queue, attached.connection)
            not_released = self._inbox.received(attached.connection)
            state = self._dispatch.detach(attached.connection, not_released)
            self._groups.detach(attached.connection, now_us)
            self._redrives.detach(attached.connection, now_us)
            if is_durable(session):
                self._records.put_delivery_state(party_key(session.party), state, now_us)
        if waits_for_restart(session, ending):
            # Its record goes on saying that it is connected, and `recover` does the rest.
            return
        will_due_at_us = plan_will(session, ending, now_us)
        if not is_durable(session):
            self._leave_groups(session, attached.subscriptions, now_us)
            self._redrives.end(session.party, now_us)
            if session.will is not None and will_due_at_us is not None:
                self._wills.owe(DueWill(session.will, None, will_due_at_us))
            return
        session = rest(session, will_due_at_us=will_due_at_us, now_us=now_us)
        if session.persistent and ending is not Ending.DISCARDED:
            self._put(session, now_us)
            self._publish_if_due(session, now_us)
        else:
            self.end(session, now_us)

    def end(self, session: Session, now_us: int) -> None:
        """Removes everything that a session at rest has (S2.14). A Will that was still to come is
        published now: it does not outlive its session."""
        self._owe_apart(session, now_us)
        self._names.release(session.queue_name)
        subscriptions = self._subscriptions_of(session)
        queue = queue_at_rest(self._log, session, own_of(subscriptions))
        left = left_behind(self._log, session, queue, now_us)
        if left is not None:
            self._lose(session, "session_ended", left, now_us)
        self._groups.lose_handed(session, now_us)
        self._leave_groups(session, subscriptions, now_us)
        self._redrives.end(session.party, now_us)
        key = session.client_identifier.encode()
        if self._records.get(Table.SUBSCRIPTIONS, key):
            self._records.put(Table.SUBSCRIPTIONS, key, b"", now_us)
        self._records.put_delivery_state(party_key(session.party), DELIVERY_STATE_REMOVED, now_us)
        if self._records.get(Table.SESSIONS, key):
            self._recorded -= 1
            self._records.put(Table.SESSIONS, key, b"", now_us)

    def recover(self, now_us: int) -> int:
        """Sessions that were connected when the broker ended, which ended their connections;
        returns how many. Their expiry and Will Delay count from now. Wills of sessions that had
        ended before are published by the first sweep, and none waits longer than its delay."""
        for name, client in self._records.refresh().named_queues():
            self._names.take(name, Owner("application", client))
        count = 0
        last = ""
        while values := self._records.refresh().connected(last.encode(), SWEEP_SESSIONS_MAXIMUM):
            for value in values:
                session = parse_session(value)
                due_at_us = plan_will(session, Ending.ABNORMAL, now_us)
                self._put(rest(session, will_due_at_us=due_at_us, now_us=now_us), now_us)
                last = session.client_identifier
            count += len(values)
        self._plan_wills_anew(now_us)
        return count

    def sweep(self, now_us: int) -> None:
        """Wills that are due: those of sessions that have expired among them."""
        self._wills.sweep(self._wills_on_record(self._records.refresh(), now_us))

    def clear_expired(self, expired_by_us: int, now_us: int) -> bool:
        """Removes what sessions have that had expired by then, as much as fits a sweep; returns
        whether that was all."""
        values = self._records.refresh().expired(expired_by_us, SWEEP_SESSIONS_MAXIMUM)
        for value in values:
            # The view may be behind: its client may have come back in the meantime.
            known = self._known(parse_session(value).client_identifier)
            if known is not None and known.expired(expired_by_us):
                self.end(known, now_us)
                self.expired += 1
                fields = {"client_identifier": known.client_identifier}
                log.info("session expired", extra={"fields": fields})
        return len(values) < SWEEP_SESSIONS_MAXIMUM

    def will_appended(self, client_identifier: str, due_at_us: int, now_us: int) -> None:
        """The Will is in the log and comes off the record: its session's, unless that has changed,
        or its own, if its session has ended."""
        key = will_key(client_identifier, due_at_us)
        if self._records.get(Table.WILLS, key):
            self._records.put(Table.WILLS, key, b"", now_us)
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
            return Target(attached.session.party, own_of(attached.subscriptions), takers)
        session = self._known(client_identifier)
        if session is None:
            return None
        return Target(session.party, own_of(self._subscriptions_of(session)), {})

    def all_attached(self) -> list[Attached]:
        """Every attached session."""
        return list(self._by_client.values())

    def _wills_on_record(self, view: View, now_us: int) -> Iterator[DueWill]:
        """Those that are due, as far as a view that may be behind tells of them."""
        for value in view.wills_due(now_us, SWEEP_SESSIONS_MAXIMUM):
            session = self._known(parse_session(value).client_identifier)
            if session is not None and session.will is not None:
                due_at_us = session.will_due_at_us
                if due_at_us is not None and due_at_us <= now_us:
                    yield DueWill(session.will, session.client_identifier, due_at_us)
        for key, value in view.wills_of_ended(SWEEP_SESSIONS_MAXIMUM):
            if self._records.get(Table.WILLS, key):
                yield DueWill(parse_will(value), *parse_will_key(key))

    def _plan_wills_anew(self, now_us: int) -> None:
        """A Will that is due later than its delay from now was planned by a clock that has been set
        back since; its delay counts from now."""
        last = ""
        while values := self._records.refresh().wills_to_come(
            now_us, last.encode(), SWEEP_SESSIONS_MAXIMUM
        ):
            for value in values:
                session = parse_session(value)
                planned_us = session.will_due_at_us
                latest_us = plan_will(session, Ending.ABNORMAL, now_us)
                if latest_us is not None and planned_us is not None and planned_us > latest_us:
                    self._put(replace(session, will_due_at_us=latest_us), now_us)
                last = session.client_identifier

    def _publish_if_due(self, session: Session, now_us: int) -> None:
        due_at_us = session.will_due_at_us
        if session.will is not None and due_at_us is not None and due_at_us <= now_us:
            self._wills.owe(DueWill(session.will, session.client_identifier, due_at_us))

    def _owe_apart(self, session: Session, now_us: int) -> None:
        """The session's record is about to forget its Will, which gets a record of its own until it
        is in the log."""
        if session.will is not None and session.will_due_at_us is not None:
            # Due now, if it was not before: Wills that have to wait go out in the order of these.
            client, due_at_us = session.client_identifier, min(session.will_due_at_us, now_us)
            while self._records.get(Table.WILLS, will_key(client, due_at_us)):
                due_at_us += 1
            value = format_will(session.will)
            self._records.put(Table.WILLS, will_key(client, due_at_us), value, now_us)
            self._wills.owe(DueWill(session.will, client, due_at_us))

    def _known(self, client: str) -> Session | None:
        if not self._recorded:
            # A fleet of clean sessions need not be looked up one by one.
            return None
        value = self._records.get(Table.SESSIONS, client.encode())
        return parse_session(value) if value else None

    def _subscriptions_of(self, session: Session) -> tuple[Subscription, ...]:
        key = session.client_identifier.encode()
        return parse_subscriptions(self._records.get(Table.SUBSCRIPTIONS, key))

    def _new_session(self, opening: Opening, identity: Identity, now_us: int) -> Session:
        durable = opening.expiry_s != 0
        return Session(
            client_identifier=opening.client_identifier,
            party=self._parties.durable(now_us) if durable else self._parties.transient(),
            protocol_version=opening.protocol_version,
            created_at_offset=self._log.end_offset(),
            expiry_s=opening.expiry_s,
            connected=True,
            user_name=identity.user_name,
            will=opening.will,
            client_type=identity.client_type,
        )

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
            self._owe_apart(known, now_us)
        return replace(
            known,
            protocol_version=opening.protocol_version,
            expiry_s=opening.expiry_s,
            connected=True,
            user_name=identity.user_name,
            expires_at_us=None,
            will=opening.will,
            will_due_at_us=None,
            client_type=identity.client_type,
        )

    def _named(self, session: Session) -> Session:
        """The session with the name of its queue, if it has one of its own (S0.6 to S0.13)."""
        name = session.queue_name
        if not session.application:
            self._names.release(name)
            name = None
        elif name is None:
            name = self._names.of_client(session.client_identifier)
        return session if name == session.queue_name else replace(session, queue_name=name)

    def _regroup(
        self, attached: Attached, subscriptions: tuple[Subscription, ...], now_us: int
    ) -> None:
        """The attached session is a member of the groups that these name, and of no others."""
        party = attached.session.party
        before, now = shared_of(attached.subscriptions), shared_of(subscriptions)
        stays = {item.topic_filter for item in now}
        gone = [item.topic_filter for item in before if item.topic_filter not in stays]
        self._groups.leave(attached.connection, party, gone, now_us)
        new = [item for item in now if item not in before]
        self._groups.attach(attached.connection, attached.session, new, now_us)

    def _leave_groups(
        self, session: Session, subscriptions: tuple[Subscription, ...], now_us: int
    ) -> None:
        names = [item.topic_filter for item in shared_of(subscriptions)]
        self._groups.leave(None, session.party, names, now_us)

    def _put(self, session: Session, now_us: int) -> None:
        key = session.client_identifier.encode()
        self._records.put(Table.SESSIONS, key, format_session(session), now_us)

    def _cut_named(self, session: Session, queue: QueueAtRest, now_us: int) -> QueueAtRest:
        """What a queue with a name has waiting, within the age and the bytes that it keeps."""
        named = NamedQueue(session.party, queue.subscriptions, session.created_at_offset)
        oldest = kept_from(self._log, named, self._config.application_queue_properties, now_us)
        queue, gone = cut_to_age(self._log, session.party, queue, oldest=oldest)
        if gone is not None:
            self._lose(session, "retention", gone, now_us)
        return queue

    def _cut_device(self, session: Session, queue: QueueAtRest, now_us: int) -> QueueAtRest:
        """What a device has waiting, within the age and the number that it may have."""
        config, party = self._config, session.party
        oldest = self._oldest.offset(config.queue_ttl_s, now_us)
        queue, stale = cut_to_age(self._log, party, queue, oldest=oldest)
        if stale is not None:
            self._lose(session, "ttl", stale, now_us)
        maximum, keep = config.queue_messages_maximum, config.queue_keep
        queue, beyond = cut_to_limit(
            *(self._log, party, queue), maximum=maximum, keep=keep, now_us=now_us
        )
        if beyond is not None:
            self._lose(session, "overflow", beyond, now_us)
        return queue

    def _lose(self, session: Session, reason: str, cut: Cut, now_us: int) -> None:
        who = (session.client_identifier, session.party)
        self._losses.add(loss_of(*who, reason, cut.ranges, cut.count, now_us))


def is_durable(session: Session) -> bool:
    """True if its delivery state is in the log: it is persistent, or was until this connection."""
    return session.party < TRANSIENT_PARTY
