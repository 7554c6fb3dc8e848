//! Decide which stored message each session is sent next, and what its acknowledgements mean.
//!
//! Owns: one [`queue::Queue`] and one [`window::Window`] for each attached session; the order in which queues get a
//! turn; what waits until the log is durable. Never: reads record bytes, encodes a packet, or waits for anything.
//!
//! Invariants:
//! 1. A cursor's mark never moves backwards.
//! 2. Messages outstanding to a session never exceed its Receive Maximum [MQTT-3.3.4-9].
//! 3. Nothing is sent at QoS 1 or 2 that is not durable; publishers are told that their messages were
//!    taken after that is durable (docs/adr/0002-one-log.md).
//! 4. A QoS 2 message is sent after its packet identifier is durable, and released after it is durable that it was
//!    received.
//!
//! Flow: store -> dispatch -> encode. Woken by what arrives and by what becomes durable; never polls.

mod admission;
mod allotment;
pub mod cursor;
mod group;
pub mod keys;
pub mod members;
mod notices;
pub mod pack;
pub mod queue;
mod retained;
pub mod window;

use crate::error::{Error, Result};
use crate::flow::state::{Changes, Flight, Owed, Phase, Source, State};
use crate::flow::{Acknowledgement, Departure, Notice, Outgoing, Refusal, Scan, Step, Subscription, Target};
use crate::ids::{self, Connection, LogPosition, Offset, Party};
use crate::limits;
use crate::topic::table::Tables;
use members::Membership;
use notices::Notices;
use pack::Pack;
use queue::Queue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use window::Window;

/// All attached sessions and their queues.
#[derive(Debug, Default)]
pub struct Dispatch {
    sessions: Vec<Option<Session>>,
    queues: Vec<Option<Queue>>,
    groups: BTreeMap<Party, ids::Queue>,
    freed: VecDeque<(ids::Queue, u64)>,
    arrived: VecDeque<Arrived>,
    arrived_total: u64,
    settled_total: u64,
    awaiting: VecDeque<Awaiting>,
    unpositioned: Vec<(u32, Departure)>,
    changed: Vec<Connection>,
    changed_groups: Vec<ids::Queue>,
    ready: VecDeque<ids::Queue>,
    /// Whose turn it is to ask the log first, among those that are ready.
    first_scan: usize,
    answered: BTreeMap<Connection, u32>,
    refused: BTreeMap<Connection, Refusal>,
    at_fault: BTreeSet<Connection>,
    notices: Notices,
    tables: Tables,
    durable: Offset,
    serial: u32,
    counters: Counters,
}

/// Totals since the start.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Messages of QoS 1 and 2 given to a window, repeated ones included.
    pub deliveries: u64,
    /// Of those, sent again after a reconnect.
    pub redeliveries: u64,
    /// Deliveries that were acknowledged to the end.
    pub completed: u64,
    /// Messages of QoS 1 and 2 that publishers were told the end of.
    pub answered: u64,
    /// Messages of any QoS that the log did not take.
    pub refused: u64,
}

/// One attached session.
#[derive(Debug)]
struct Session {
    party: Party,
    queue: ids::Queue,
    serial: u32,
    window: Window,
    /// What its own queue may give before it waits; none if that may always go on.
    pack: Option<Pack>,
    is_writable: bool,
    allotted_bytes: usize,
    changes: Changes,
    is_changed: bool,
    memberships: Vec<Membership>,
    /// The session has subscriptions of its own.
    has_own: bool,
    /// How much of the window one group may take.
    part: usize,
}

/// A stored message on its way to queues; it waits until it is durable.
#[derive(Debug)]
struct Arrived {
    durable_at: LogPosition,
    found: crate::flow::Found,
    publisher: Party,
    targets: Arc<[Target]>,
}

/// A packet that waits until the log is durable up to `position`; dropped if its session is gone by then.
#[derive(Debug)]
struct Awaiting {
    position: LogPosition,
    serial: u32,
    packet: Departure,
}

/// How a session is attached.
#[derive(Debug)]
pub struct Attachment {
    /// Whose session.
    pub party: Party,
    /// Its delivery state.
    pub state: State,
    /// Its subscriptions, past ones included.
    pub subscriptions: Arc<[Subscription]>,
    /// The client's Receive Maximum.
    pub receive_maximum: u16,
    /// The log's end: from here on the session is routed to directly.
    pub end: Offset,
    /// 0: the queue reads the log again when it falls behind. Else it keeps this many entries and skips the rest.
    pub entries_maximum: usize,
    /// How many messages its own queue gives before all of them must be acknowledged; 0: it goes on always.
    pub pack_maximum: usize,
}

impl Dispatch {
    /// The session is on `connection` from now on; returns its queue. What was in flight goes on first: what was
    /// received is released at once, the rest is sent again as the log gives the records again, in their order
    /// [MQTT-4.4.0-1].
    pub fn attach(&mut self, connection: Connection, attachment: Attachment) -> Result<ids::Queue> {
        let index = slot(connection.0);
        if self.sessions.get(index).is_some_and(Option::is_some) {
            return Err(Error::Invalid(format!("connection {} has a session already", connection.0)));
        }
        let Attachment { party, state, subscriptions, receive_maximum, end, entries_maximum, pack_maximum } =
            attachment;
        let (handle, has_own) = (self.take_handle(), !subscriptions.is_empty());
        let queue = Queue::resume(party, connection, &state, subscriptions, end, entries_maximum);
        let flights = state.flights.iter().map(|(identifier, flight)| (*identifier, *flight));
        let own = state.flights.values().filter(|flight| flight.source == Source::Queue).map(|flight| flight.offset);
        let pack = (pack_maximum > 0).then(|| Pack::resume(pack_maximum, own));
        let window = Window::resume(receive_maximum, state.last_packet_identifier, flights);
        self.serial = self.serial.wrapping_add(1);
        for (identifier, flight) in &state.flights {
            if flight.phase == Phase::Received {
                self.await_now(connection, Step::Released, *identifier);
            }
        }
        put(&mut self.queues, slot(handle.0), queue);
        let session = Session {
            party,
            queue: handle,
            serial: self.serial,
            window,
            pack,
            is_writable: true,
            allotted_bytes: 0,
            changes: Changes::default(),
            is_changed: false,
            memberships: Vec::new(),
            has_own,
            part: 0,
        };
        put(&mut self.sessions, index, session);
        self.make_ready(handle);
        Ok(handle)
    }

    /// What the session's own queue has below `end` may have been sent to it at QoS 1, which is on no record: it goes
    /// out with DUP.
    pub fn set_sent_before(&mut self, handle: ids::Queue, end: Offset) -> Result<()> {
        self.queue_mut(handle)?.sent_before = end;
        Ok(())
    }

    /// The session leaves `connection`; returns its whole delivery state. `received` are the packet identifiers of
    /// QoS 2 messages from the client that it has not released.
    pub fn detach(&mut self, connection: Connection, received: impl Iterator<Item = u16>) -> Result<State> {
        let session = self.sessions.get_mut(slot(connection.0)).and_then(Option::take);
        let session = session.ok_or_else(|| no_session(connection))?;
        let queue = self.queues.get_mut(slot(session.queue.0)).and_then(Option::take);
        let mut queue = queue.ok_or_else(|| no_session(connection))?;
        self.freed.push_back((session.queue, self.arrived_total));
        self.ready.retain(|handle| *handle != session.queue);
        self.answered.remove(&connection);
        self.refused.remove(&connection);
        self.at_fault.remove(&connection);
        self.give_all_back(connection, &session);
        queue.catch_up_mark(self.durable);
        Ok(state_of(&session, &queue, received))
    }

    /// The session's whole delivery state while it stays attached, for a checkpoint.
    pub fn state(&mut self, connection: Connection, received: impl Iterator<Item = u16>) -> Result<State> {
        let session = self.sessions.get(slot(connection.0)).and_then(Option::as_ref);
        let session = session.ok_or_else(|| no_session(connection))?;
        let queue = self.queues.get_mut(slot(session.queue.0)).and_then(Option::as_mut);
        let queue = queue.ok_or_else(|| no_session(connection))?;
        queue.catch_up_mark(self.durable);
        Ok(state_of(session, queue, received))
    }

    /// Replaces the subscriptions by which the queue reads the log.
    pub fn set_subscriptions(&mut self, handle: ids::Queue, subscriptions: Arc<[Subscription]>) -> Result<()> {
        let has_own = !subscriptions.is_empty();
        let queue = self.queue_mut(handle)?;
        queue.set_subscriptions(subscriptions);
        let connection = queue.connection;
        if let Some(session) = self.session_mut(connection) {
            session.has_own = has_own;
            session.divide();
        }
        self.drop_owed_filters(handle);
        Ok(())
    }

    /// Replaces what the queue may get (topic filter, allowed, in order); `None` for everything.
    pub fn grant<Filter: AsRef<[u8]>>(&mut self, handle: ids::Queue, receive: Option<&[(Filter, bool)]>) -> Result<()> {
        let receive = receive.map(|rules| self.tables.table(rules)).transpose()?;
        self.queue_mut(handle)?.grant(receive);
        self.make_ready(handle);
        Ok(())
    }

    /// Whether the connection's socket takes more bytes; while it does not, its messages stay in the log.
    pub fn set_writable(&mut self, connection: Connection, is_writable: bool) {
        let Some(session) = self.session_mut(connection) else { return };
        session.is_writable = is_writable;
        let queue = session.queue;
        if is_writable {
            self.make_ready(queue);
            self.make_groups_ready(connection);
        }
    }

    /// `data` goes out once the log is durable up to `position`.
    pub fn hold(&mut self, connection: Connection, data: Vec<u8>, position: LogPosition) {
        let serial = self.serial_of(connection);
        self.push_awaiting(position, serial, Departure::Encoded(connection, data));
    }

    /// The queues that need the log, and what they ask of it.
    pub fn hungry(&mut self, durable: Offset) -> Vec<Scan> {
        self.durable = self.durable.max(durable);
        // Each turn begins with another queue, so that none waits behind one that has much to look through.
        let ready = self.ready.len();
        self.first_scan = self.first_scan.wrapping_add(1).checked_rem(ready).unwrap_or_default();
        let mut scans = Vec::new();
        for handle in self.ready.iter().copied().cycle().skip(self.first_scan).take(ready) {
            if scans.len() >= limits::SCANS_MAXIMUM {
                break;
            }
            let Some(queue) = self.queues.get(slot(handle.0)).and_then(Option::as_ref) else { continue };
            if queue.needs_log(self.durable) && self.can_send(handle, queue) {
                scans.push(queue.scan(handle, self.durable));
            }
        }
        scans
    }

    /// Gives queues what the log found for them.
    pub fn feed(&mut self, scans: &mut Vec<Scan>) {
        for mut scan in scans.drain(..) {
            self.feed_returned(&mut scan);
            self.feed_retained(&mut scan);
            let Ok(queue) = self.queue_mut(scan.queue) else { continue };
            let (party, connection) = (queue.party, queue.connection);
            let gone = queue.feed(&mut scan);
            let because = queue.gone_because();
            if let Some((first, end)) = scan.missing {
                let count = end.0.saturating_sub(first.0);
                self.notices.add(Notice { party, kind: crate::flow::NoticeKind::Retention, first, end, count });
            }
            for (identifier, offset) in gone {
                self.give_up(connection, identifier, offset, because);
            }
            self.make_ready(scan.queue);
        }
    }

    /// True if another turn has work although nothing new arrived or became durable.
    pub fn is_waiting(&self) -> bool {
        self.ready.iter().any(|handle| {
            let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
            queue.is_some_and(|queue| {
                self.is_waited_for(*handle, queue)
                    || self.can_send(*handle, queue) && (queue.has_entries() || queue.needs_log(self.durable))
            })
        })
    }

    /// True if a message or an answer waits until the log is durable further on.
    pub fn awaits_commit(&self) -> bool {
        !self.awaiting.is_empty() || !self.arrived.is_empty() || self.owes_beyond_durable()
    }

    /// Retained messages of QoS 0 are stored without anybody waiting for that, until a subscriber does.
    fn owes_beyond_durable(&self) -> bool {
        let queue = |handle: &ids::Queue| self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        self.ready.iter().filter_map(queue).any(|queue| queue.owes_beyond(self.durable))
    }

    /// How many QoS 1 and 2 messages of each connection have been answered to the end since the last call.
    pub fn take_answered(&mut self) -> BTreeMap<Connection, u32> {
        std::mem::take(&mut self.answered)
    }

    /// Connections whose messages the log refused since the last call, and why.
    pub fn take_refused(&mut self) -> BTreeMap<Connection, Refusal> {
        std::mem::take(&mut self.refused)
    }

    /// Connections that since the last call have sent an acknowledgement that does not belong to the exchange of its
    /// packet identifier.
    pub fn take_at_fault(&mut self) -> BTreeSet<Connection> {
        std::mem::take(&mut self.at_fault)
    }

    /// What will not be delivered, since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// What has to be remembered of this turn: for each durable party its encoded changes.
    pub fn take_progress(&mut self) -> Vec<(Party, Vec<u8>)> {
        let mut progress = Vec::new();
        for connection in std::mem::take(&mut self.changed) {
            let Some(session) = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut) else { continue };
            session.is_changed = false;
            let mut changes = std::mem::take(&mut session.changes);
            let queue = self.queues.get_mut(slot(session.queue.0)).and_then(Option::as_mut);
            if let Some(progress) = queue.and_then(|queue| queue.cursor.take_progress()) {
                changes.mark = Some(progress.mark);
                changes.acknowledged.extend(progress.ranges.iter().map(|(first, end)| (Offset(first), Offset(end))));
            }
            if session.party.is_durable() && !changes.is_empty() {
                let mut value = Vec::new();
                changes.encode(&mut value);
                progress.push((session.party, value));
            }
        }
        // After those of members: what a group has handed over is in the member's record first.
        self.take_group_progress(&mut progress);
        progress
    }

    /// The progress of this turn is durable once the log is durable up to `position`: what depends on it waits.
    pub fn progressed(&mut self, position: LogPosition) {
        for (serial, packet) in std::mem::take(&mut self.unpositioned) {
            self.push_awaiting(position, serial, packet);
        }
    }

    /// True if a packet of this turn waits for progress that is not yet in the log.
    pub fn needs_progress(&self) -> bool {
        !self.unpositioned.is_empty()
    }

    /// The mark of an attached queue.
    pub fn mark(&mut self, handle: ids::Queue) -> Result<Offset> {
        let durable = self.durable;
        let queue = self.queue_mut(handle)?;
        queue.catch_up_mark(durable);
        Ok(queue.cursor.mark())
    }

    /// Messages in flight to the queue's session, or from a group at QoS 1 to its members; by key also those of QoS 2
    /// that have not been received: their keys stay where they are until then.
    pub fn in_flight(&mut self, handle: ids::Queue) -> Result<usize> {
        let queue = self.queue_mut(handle)?;
        if queue.group.is_some() {
            let held = queue.cursor.in_flight_count();
            return Ok(queue.keys().map_or(held, |keys| keys.in_flight()));
        }
        let connection = queue.connection;
        Ok(self.session(connection).map_or(0, |session| session.window.len()))
    }

    /// Every session's queue: party, queue, connection.
    pub fn queues(&self) -> Vec<(Party, ids::Queue, Connection)> {
        let attached = self.sessions.iter().zip(0_u32..);
        attached
            .filter_map(|(session, index)| session.as_ref().map(|s| (s.party, s.queue, Connection(index))))
            .collect()
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// True if somebody has room for what the queue has.
    fn can_send(&self, handle: ids::Queue, queue: &Queue) -> bool {
        match &queue.group {
            None => {
                let session = self.session(queue.connection).filter(|session| session.is_writable);
                session.is_some_and(|session| match session.window.has_room() {
                    true => session.takes_new() || queue.has_beside(self.durable),
                    false => session.window.has_quota() && queue.goes_on_again(),
                })
            }
            Some(group) => group.looks_on() && self.has_taker(handle, group),
        }
    }

    fn take_handle(&mut self) -> ids::Queue {
        // A handle is used again only when no message that is still on its way names it.
        if let Some((handle, until)) = self.freed.front().copied() {
            if until <= self.settled_total {
                self.freed.pop_front();
                return handle;
            }
        }
        self.queues.push(None);
        ids::Queue(u32::try_from(self.queues.len().saturating_sub(1)).unwrap_or(u32::MAX))
    }

    fn make_ready(&mut self, handle: ids::Queue) {
        if let Some(queue) = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut) {
            if !queue.is_ready {
                queue.is_ready = true;
                self.ready.push_back(handle);
            }
        }
    }

    fn change(&mut self, connection: Connection, change: impl FnOnce(&mut Changes)) {
        let Some(session) = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut) else { return };
        if session.party.is_durable() {
            change(&mut session.changes);
        }
        if !session.is_changed {
            session.is_changed = true;
            self.changed.push(connection);
        }
    }

    fn push_awaiting(&mut self, position: LogPosition, serial: u32, packet: Departure) {
        let after = self.awaiting.back().map_or(position, |last| last.position.max(position));
        self.awaiting.push_back(Awaiting { position: after, serial, packet });
    }

    fn await_now(&mut self, connection: Connection, step: Step, packet_identifier: u16) {
        let serial = self.serial;
        let acknowledgement = Acknowledgement { connection, step, packet_identifier, refusal: None };
        self.push_awaiting(LogPosition(0), serial, Departure::Acknowledgement(acknowledgement));
    }

    fn session(&self, connection: Connection) -> Option<&Session> {
        self.sessions.get(slot(connection.0)).and_then(Option::as_ref)
    }

    fn session_mut(&mut self, connection: Connection) -> Option<&mut Session> {
        self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut)
    }

    fn serial_of(&self, connection: Connection) -> u32 {
        self.session(connection).map_or(0, |session| session.serial)
    }

    fn queue_mut(&mut self, handle: ids::Queue) -> Result<&mut Queue> {
        let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
        queue.ok_or_else(|| Error::Invalid(format!("there is no queue {}", handle.0)))
    }
}

impl Session {
    fn membership_of(&mut self, party: Party) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|membership| membership.party == party)
    }
}

fn state_of(session: &Session, queue: &Queue, received: impl Iterator<Item = u16>) -> State {
    // What a group has in flight at QoS 1 is the group's.
    let keeps = |flight: &Flight| flight.qos == 2 || !matches!(flight.source, Source::Group(_));
    let flights: BTreeMap<u16, Flight> = session.window.flights().filter(|(_, flight)| keeps(flight)).collect();
    let mut owed: Vec<Owed> = Vec::new();
    for flight in flights.values().filter(|flight| flight.source == Source::Retained && flight.phase == Phase::Sent) {
        owed.push(Owed { offset: flight.offset, qos: flight.qos, identifier: None });
    }
    owed.extend(queue.owed_entries.iter().map(|(_, owed)| owed.clone()).filter(|owed| owed.qos > 0));
    owed.extend(queue.owed.iter().filter(|owed| owed.qos > 0).cloned());
    owed.sort_by_key(|owed| owed.offset);
    owed.dedup_by_key(|owed| owed.offset);
    let owed_filters = queue.owed_filters.iter().filter(|(_, owed)| owed.qos > 0);
    State {
        mark: queue.cursor.mark(),
        acknowledged: queue.cursor.acknowledged().clone(),
        flights,
        owed,
        owed_filters: owed_filters.map(|(filter, owed)| (filter.clone(), owed.clone())).collect(),
        received: received.collect(),
        last_packet_identifier: session.window.last(),
    }
}

fn put<T>(slots: &mut Vec<Option<T>>, index: usize, value: T) {
    if slots.len() <= index {
        slots.resize_with(index.saturating_add(1), || None);
    }
    if let Some(place) = slots.get_mut(index) {
        *place = Some(value);
    }
}

fn slot(handle: u32) -> usize {
    usize::try_from(handle).unwrap_or(usize::MAX)
}

fn no_session(connection: Connection) -> Error {
    Error::Invalid(format!("connection {} has no session", connection.0))
}

/// Gives `outgoing` what may go now.
fn emit(outgoing: &mut Outgoing, packet: Departure) {
    outgoing.departures.push(packet);
}
