//! Decide which stored message each receiver is sent next, and what its acknowledgements mean.
//!
//! Owns: the attached queues and who takes from them; what waits until the log is durable. Each part is a file that
//! owns its fields; what several of them do together is here and in the files named for it. Never: reads record bytes,
//! encodes a packet, or waits for anything.
//!
//! Invariants:
//! 1. A cursor's mark never moves backwards.
//! 2. Messages outstanding to a receiver never exceed what it allowed [MQTT-3.3.4-9].
//! 3. Nothing is sent at QoS 1 or 2 that is not durable; publishers are told that their messages were
//!    taken after that is durable (docs/adr/0002-one-log.md).
//! 4. An entry is at one receiver by permits at most, and that has a permit when it is given.
//! 5. A QoS 2 message is sent after its packet identifier is durable, and released after it is durable that it was
//!    received.
//!
//! Flow: store -> delivery -> encode. Woken by what arrives and by what becomes durable; never polls.

mod admission;
mod allotment;
mod consumer;
mod consumers;
pub mod cursor;
mod group;
mod held;
mod instant;
pub mod keys;
pub mod members;
mod notices;
pub mod pack;
pub mod packs;
pub mod queue;
mod queues;
mod receiver;
mod receivers;
mod reports;
mod retained;
pub mod window;

pub use consumers::Consuming;
pub use reports::Counters;

use crate::error::{Error, Result};
use crate::flow::moment::InFlight;
use crate::flow::state::{Changes, Flight, Owed, Phase, Source, State};
use crate::flow::{Acknowledgement, Departure, Notice, NoticeKind, Refusal, Scan, Step, Subscription};
use crate::ids::{self, Connection, LogPosition, Offset, Party, Timestamp};
use crate::limits;
use held::Held;
use notices::Notices;
use pack::Pack;
use queue::Queue;
use queues::Queues;
use receiver::Receiver;
use receivers::Receivers;
use reports::Reports;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use window::Window;

/// All attached queues and receivers.
#[derive(Debug, Default)]
pub struct Deliveries {
    receivers: Receivers,
    queues: Queues,
    held: Held,
    notices: Notices,
    reports: Reports,
    keeps_unreceived: bool,
}

/// How a receiver with a queue of its own is attached.
#[derive(Debug)]
pub struct Attachment {
    /// Whose it is.
    pub party: Party,
    /// Its delivery state.
    pub state: State,
    /// Its subscriptions, past ones included.
    pub subscriptions: Arc<[Subscription]>,
    /// How many messages may be in flight to it.
    pub receive_maximum: u16,
    /// The log's end: from here on the queue is routed to directly.
    pub end: Offset,
    /// 0: the queue reads the log again when it falls behind. Else it keeps this many entries and skips the rest.
    pub entries_maximum: usize,
    /// How many messages its own queue gives before all of them must be acknowledged; 0: it goes on always.
    pub pack_maximum: usize,
}

impl Deliveries {
    /// A receiver is on `connection` from now on; returns it and its queue. What was in flight goes on first: what was
    /// received is released at once, the rest is sent again as the log gives the records again, in their order
    /// [MQTT-4.4.0-1].
    pub fn attach(&mut self, connection: Connection, attachment: Attachment) -> Result<(ids::Receiver, ids::Queue)> {
        if self.receivers.on(connection).is_some() {
            return Err(Error::Invalid(format!("connection {} has a receiver already", connection.0)));
        }
        let Attachment { party, state, subscriptions, receive_maximum, end, entries_maximum, pack_maximum } =
            attachment;
        let (receiver, has_own) = (self.receivers.next(), !subscriptions.is_empty());
        let mut queue = Queue::resume(party, connection, &state, subscriptions, end, entries_maximum);
        queue.receiver = Some(receiver);
        let queue = self.queues.add(queue, self.held.settled_total());
        let flights = state.flights.iter().map(|(identifier, flight)| (*identifier, *flight));
        let own = state.flights.values().filter(|flight| flight.source == Source::Queue).map(|flight| flight.offset);
        self.receivers.add(Receiver {
            connection,
            serial: 0,
            party,
            queue,
            window: Window::resume(receive_maximum, state.last_packet_identifier, flights),
            pack: (pack_maximum > 0).then(|| Pack::resume(pack_maximum, own)),
            is_writable: true,
            allotted_bytes: 0,
            acknowledged: 0,
            changes: Changes::default(),
            is_changed: false,
            memberships: Vec::new(),
            has_own,
            part: 0,
            copied_for: 0,
        });
        for (identifier, _) in state.flights.iter().filter(|(_, flight)| flight.phase == Phase::Received) {
            self.release(connection, *identifier);
        }
        Ok((receiver, queue))
    }

    /// What the receiver's own queue has below `end` may have been sent to it at QoS 1, which is on no record: it goes
    /// out with DUP.
    pub fn set_sent_before(&mut self, handle: ids::Queue, end: Offset) -> Result<()> {
        self.queues.find(handle)?.sent_before = end;
        Ok(())
    }

    /// The receiver leaves its connection; returns its whole delivery state. `unreleased` are the packet identifiers of
    /// QoS 2 messages from the client that it has not released.
    pub fn detach(&mut self, handle: ids::Receiver, unreleased: impl Iterator<Item = u16>) -> Result<State> {
        let receiver = self.receivers.remove(handle)?;
        self.reports.forget(receiver.connection);
        self.give_all_back(handle, &receiver);
        let queue = self.queues.remove(receiver.queue, self.held.arrived_total());
        let mut queue = queue.ok_or_else(|| Error::Invalid(format!("receiver {} has no queue", handle.0)))?;
        queue.catch_up_mark(self.held.durable());
        Ok(state_of(&receiver, &queue, unreleased))
    }

    /// The receiver's whole delivery state while it stays attached, for a checkpoint.
    pub fn state(&mut self, handle: ids::Receiver, unreleased: impl Iterator<Item = u16>) -> Result<State> {
        let receiver = self.receivers.find(handle)?;
        let queue = self.queues.find(receiver.queue)?;
        queue.catch_up_mark(self.held.durable());
        Ok(state_of(receiver, queue, unreleased))
    }

    /// The receiver on a connection that has a queue of its own, if it has one.
    pub fn receiver_on(&self, connection: Connection) -> Option<ids::Receiver> {
        self.receivers.on(connection)
    }

    /// Where a receiver is, while it is attached.
    pub fn connection_of(&self, handle: ids::Receiver) -> Option<Connection> {
        self.receivers.get(handle).map(|receiver| receiver.connection)
    }

    /// Replaces the subscriptions by which the queue reads the log, the first `kept` apart.
    pub fn set_subscriptions(&mut self, handle: ids::Queue, kept: usize, others: &[Subscription]) -> Result<()> {
        let has_own = kept > 0 || !others.is_empty();
        let queue = self.queues.find(handle)?;
        let (receiver, dropped) = (queue.receiver, queue.set_subscriptions(kept, others)?);
        if let Some(receiver) = receiver.and_then(|receiver| self.receivers.get_mut(receiver)) {
            receiver.has_own = has_own;
            receiver.divide();
        }
        self.forget_owed(receiver, dropped);
        Ok(())
    }

    /// Replaces what the queue may get (topic filter, allowed, in order); `None` for everything.
    pub fn grant<Filter: AsRef<[u8]>>(&mut self, handle: ids::Queue, receive: Option<&[(Filter, bool)]>) -> Result<()> {
        let receive = receive.map(|rules| self.queues.grant(rules)).transpose()?;
        self.queues.find(handle)?.grant(receive);
        self.queues.make_ready(handle);
        Ok(())
    }

    /// Whether the connection's socket takes more bytes; while it does not, its messages stay in the log.
    pub fn set_writable(&mut self, connection: Connection, is_writable: bool) {
        self.receivers.set_writable(connection, is_writable);
        if !is_writable {
            return;
        }
        for handle in self.receivers.consumers_on(connection) {
            if let Some(queue) = self.receivers.consumer(*handle).and_then(|consumer| consumer.queue) {
                self.queues.make_ready(queue);
            }
        }
        if let Some(handle) = self.receivers.on(connection) {
            self.make_queues_ready(handle);
        }
    }

    /// `data` goes out once the log is durable up to `position`.
    pub fn hold(&mut self, connection: Connection, data: Vec<u8>, position: LogPosition) {
        let serial = self.receivers.serial_of(connection);
        self.held.until(position, serial, Departure::Encoded(connection, data));
    }

    /// The queues that need the log, and what they ask of it.
    pub fn hungry(&mut self, durable: Offset) -> Vec<Scan> {
        self.held.advance(durable);
        let Deliveries { receivers, queues, held, .. } = self;
        let durable = held.durable();
        let hungry = queues
            .ready_by_turns()
            .filter(|(handle, queue)| queue.needs_log(durable) && receivers.have_room_for(*handle, queue, durable));
        hungry.map(|(handle, queue)| queue.scan(handle, durable)).take(limits::SCANS_MAXIMUM).collect()
    }

    /// Gives queues what the log found for them.
    pub fn feed(&mut self, scans: &mut Vec<Scan>) {
        for mut scan in scans.drain(..) {
            self.feed_returned(&mut scan);
            self.feed_retained(&mut scan);
            let Some(queue) = self.queues.get_mut(scan.queue) else { continue };
            let (party, receiver) = (queue.party, queue.receiver);
            let gone = queue.feed(&mut scan);
            let because = queue.gone_because();
            if let Some((first, end)) = scan.missing {
                let count = end.0.saturating_sub(first.0);
                self.notices.add(Notice { party, kind: NoticeKind::Retention, first, end, count });
            }
            for (identifier, offset) in gone {
                if let Some(receiver) = receiver {
                    self.give_up(receiver, identifier, offset, because);
                }
            }
            self.queues.make_ready(scan.queue);
        }
    }

    /// True if another turn has work although nothing new arrived or became durable.
    pub fn is_waiting(&self) -> bool {
        let durable = self.held.durable();
        self.queues.ready().any(|(handle, queue)| {
            self.receivers.are_waited_for(handle, queue)
                || self.receivers.have_room_for(handle, queue, durable)
                    && (queue.has_entries() || queue.needs_log(durable))
        })
    }

    /// True if a message or an answer waits until the log is durable further on. Retained messages of QoS 0 are stored
    /// without anybody waiting for that, until a subscriber does.
    pub fn awaits_commit(&self) -> bool {
        let durable = self.held.durable();
        self.held.is_any() || self.queues.ready().any(|(_, queue)| queue.owes_beyond(durable))
    }

    /// True if an answer from the connection frees no room that anything waits for.
    pub fn is_at_rest(&self, connection: Connection) -> bool {
        let gives =
            |queue: ids::Queue| self.queues.get(queue).is_some_and(|queue| queue.has_entries() || queue.reads_on());
        let window = self.receivers.on(connection).and_then(|receiver| self.receivers.get(receiver));
        let mut consumers = self.receivers.consumers_on(connection).iter();
        !window
            .is_some_and(|receiver| gives(receiver.queue) || receiver.memberships.iter().any(|part| gives(part.group)))
            && !consumers
                .any(|handle| self.receivers.consumer(*handle).and_then(|known| known.queue).is_some_and(gives))
    }

    /// True if there are notices.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// True if messages were refused, or a peer has broken the rules of an exchange, since that was last asked for.
    pub fn has_reports(&self) -> bool {
        self.reports.is_any()
    }

    /// How many QoS 1 and 2 messages of each connection have been answered to the end since the last call.
    pub fn take_answered(&mut self) -> BTreeMap<Connection, u32> {
        self.reports.take_answered()
    }

    /// Messages and entries that were not taken since the last call, by connection and by why.
    pub fn take_refused(&mut self) -> BTreeMap<(Connection, Refusal), u32> {
        self.reports.take_refused()
    }

    /// Connections that since the last call have sent an acknowledgement that does not belong to the exchange of its
    /// packet identifier.
    pub fn take_at_fault(&mut self) -> BTreeSet<Connection> {
        self.reports.take_at_fault()
    }

    /// What will not be delivered, since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// What has to be remembered of this turn: for each durable party its encoded changes.
    pub fn take_progress(&mut self) -> Vec<(Party, Vec<u8>)> {
        let mut progress = Vec::new();
        for handle in self.receivers.take_changed() {
            let Some(receiver) = self.receivers.get_mut(handle) else { continue };
            receiver.is_changed = false;
            let mut changes = std::mem::take(&mut receiver.changes);
            let queue = self.queues.get_mut(receiver.queue);
            if let Some(progress) = queue.and_then(|queue| queue.cursor.take_progress()) {
                changes.mark = Some(progress.mark);
                changes.acknowledged.extend(progress.ranges.iter().map(|(first, end)| (Offset(first), Offset(end))));
            }
            if receiver.party.is_durable() && !changes.is_empty() {
                let mut value = Vec::new();
                changes.encode(&mut value);
                progress.push((receiver.party, value));
            }
        }
        // After those of members: what a group has handed over is in the member's record first.
        self.take_group_progress(&mut progress);
        progress
    }

    /// The progress of this turn is durable once the log is durable up to `position`: what depends on it waits.
    pub fn progressed(&mut self, position: LogPosition) {
        self.held.progressed(position);
    }

    /// True if something of this turn waits for progress that is not yet in the log.
    pub fn needs_progress(&self) -> bool {
        self.held.needs_progress()
    }

    /// The mark of an attached queue.
    pub fn mark(&mut self, handle: ids::Queue) -> Result<Offset> {
        let queue = self.queues.find(handle)?;
        queue.catch_up_mark(self.held.durable());
        Ok(queue.cursor.mark())
    }

    /// Below which offset the queue has read the log, whether or not it has given what it found.
    pub fn polled_to(&mut self, handle: ids::Queue) -> Result<Offset> {
        Ok(self.queues.find(handle)?.polled_to())
    }

    /// Messages that the queue's receiver has acknowledged since it was attached; none of a group's.
    pub fn acknowledged(&mut self, handle: ids::Queue) -> Result<u64> {
        let receiver = self.queues.find(handle)?.receiver.and_then(|receiver| self.receivers.get(receiver));
        Ok(receiver.map_or(0, |receiver| receiver.acknowledged))
    }

    /// Messages in flight to the queue's receiver, or from a group at QoS 1 to its members; by key also those of QoS 2
    /// that have not been received: their keys stay where they are until then.
    pub fn in_flight(&mut self, handle: ids::Queue) -> Result<usize> {
        let queue = self.queues.find(handle)?;
        if queue.is_whole() {
            let in_flight = self.consumers(handle)?.iter().map(|member| member.in_flight).sum::<u64>();
            return Ok(usize::try_from(in_flight).unwrap_or(usize::MAX));
        }
        if queue.group.is_some() {
            let held = queue.cursor.in_flight_count();
            return Ok(queue.keys().map_or(held, |keys| keys.in_flight()));
        }
        let receiver = queue.receiver.and_then(|receiver| self.receivers.get(receiver));
        Ok(receiver.map_or(0, |receiver| receiver.window.len()))
    }

    /// When each message in flight to the queue's receiver was sent last on this connection; 0: it was not.
    pub fn sent(&mut self, handle: ids::Queue) -> Result<Vec<(Offset, Timestamp)>> {
        let receiver = self.queues.find(handle)?.receiver.and_then(|receiver| self.receivers.get(receiver));
        let sent = receiver.into_iter().flat_map(|receiver| receiver.window.sent());
        Ok(sent.map(|(_, flight, _, since)| (flight.offset, since)).collect())
    }

    /// Every receiver's own queue: party, queue, connection.
    pub fn queues(&self) -> Vec<(Party, ids::Queue, Connection)> {
        let receivers = self.receivers.iter();
        receivers.map(|(_, receiver)| (receiver.party, receiver.queue, receiver.connection)).collect()
    }

    /// What is in flight at this moment is to be copied, while it changes.
    pub fn begin_instant(&mut self) {
        self.receivers.begin_instant();
    }

    /// What has been copied since the last call, with about `effort` more of it; true if that was all. Of each receiver
    /// there is first a row with packet identifier 0.
    pub fn instant_piece(&mut self, effort: usize) -> (Vec<InFlight>, bool) {
        self.receivers.instant_piece(effort)
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.reports.counters()
    }

    /// The receiver has room again: the queues that it takes from may have something for it.
    fn make_queues_ready(&mut self, handle: ids::Receiver) {
        let Some(receiver) = self.receivers.get(handle) else { return };
        self.queues.make_ready(receiver.queue);
        for membership in &receiver.memberships {
            self.queues.make_ready(membership.group);
        }
    }

    /// What was received is released; nothing has to be durable for that.
    fn release(&mut self, connection: Connection, packet_identifier: u16) {
        let told = Acknowledgement { connection, step: Step::Released, packet_identifier, refusal: None };
        let serial = self.receivers.serial_of(connection);
        self.held.until(LogPosition(0), serial, Departure::Acknowledgement(told));
    }
}

fn state_of(receiver: &Receiver, queue: &Queue, unreleased: impl Iterator<Item = u16>) -> State {
    // What a group has in flight at QoS 1 is the group's.
    let keeps = |flight: &Flight| flight.qos == 2 || !matches!(flight.source, Source::Group(_));
    let flights: BTreeMap<u16, Flight> = receiver.window.flights().filter(|(_, flight)| keeps(flight)).collect();
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
        unreleased: unreleased.collect(),
        last_packet_identifier: receiver.window.last(),
    }
}
