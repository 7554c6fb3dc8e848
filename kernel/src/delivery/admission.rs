//! What arrived is taken over: acknowledgements at once, messages and answers when they are durable.

use super::cursor::Entry;
use super::held::Arrived;
use super::queue::{entry_of, Offered};
use super::window::Stepped;
use super::Deliveries;
use crate::flow::entry::{EntryParts, Receipt};
use crate::flow::exchange::{Follows, Next};
use crate::flow::state::{Flight, Phase, Source};
use crate::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Found, Notice, NoticeKind, Outgoing, Publish, Refusal, Step, Stored,
    Target,
};
use crate::ids::{self, Connection, KeySlot, LogPosition, Offset, Timestamp};

impl Deliveries {
    /// Takes over one turn. What receivers say counts at once; messages, and what their publishers are
    /// owed, wait until they are durable. `end` is the log's present end: repeated messages wait for that. `next` is
    /// the table of the protocol in which it all came.
    pub fn admit(&mut self, arrivals: &Arrivals, end: LogPosition, next: Next) {
        for acknowledgement in &arrivals.acknowledgements {
            self.acknowledge(acknowledgement, next);
        }
        for settlement in &arrivals.settlements {
            self.hear(arrivals, settlement);
        }
        for permits in &arrivals.permits {
            self.permit(permits);
        }
        for publish in &arrivals.publishes {
            match (publish.fate, publish.stored) {
                (Fate::Accepted, Some(stored)) => self.accept(arrivals, publish, stored),
                (Fate::Accepted, None) => {}
                (Fate::Duplicate, _) => self.answer(publish, arrivals.entry_of(publish), end, None),
                (Fate::Refused(refusal), _) => {
                    self.reports.refuse(publish.connection, refusal);
                    self.answer(publish, arrivals.entry_of(publish), LogPosition(0), Some(refusal));
                }
                (Fate::Denied, _) => {
                    let refusal = Some(Refusal::NotAuthorized);
                    self.answer(publish, arrivals.entry_of(publish), LogPosition(0), refusal);
                }
            }
        }
    }

    /// What has become durable moves on: publishers get their answers, queues their messages.
    pub fn settle(&mut self, durable: Offset, position: LogPosition, outgoing: &mut Outgoing) {
        self.held.advance(durable);
        while let Some((serial, departure)) = self.held.next_departure(position) {
            if self.receivers.serial_of(departure.connection()) != serial {
                continue;
            }
            match &departure {
                Departure::Acknowledgement(told) if is_end(told) => self.reports.answer(told.connection),
                Departure::Receipt(_) => self.reports.receipt(),
                _ => {}
            }
            outgoing.departures.push(departure);
        }
        while let Some(arrived) = self.held.next_arrived(position) {
            self.offer(&arrived);
        }
    }

    fn accept(&mut self, arrivals: &Arrivals, publish: &Publish, stored: Stored) {
        if publish.qos > 0 || stored.is_kept {
            let parts = arrivals.entry_of(publish);
            let count = parts.map_or(1, |parts| parts.count.max(1));
            if publish.qos > 0 {
                self.answer(publish, parts, stored.durable_at, None);
            }
            let end = Offset(stored.offset.0.saturating_add(u64::from(count)));
            let is_any_unwritable = self.receivers.is_any_unwritable();
            // What is kept of QoS 0 is for those alone that take all there is.
            let mut awaits = |one: &Target| {
                one.terms.qos > 0
                    && (publish.qos > 0 || self.queues.get_mut(one.queue).is_some_and(|queue| queue.is_whole()))
                    && (!is_any_unwritable || self.is_awaited(one, end))
            };
            if let Some(targets) = publish.targets.as_ref().filter(|all| all.iter().any(&mut awaits)) {
                let found = Found {
                    offset: stored.offset,
                    entry: stored.entry,
                    count,
                    location: stored.location,
                    size_bytes: stored.size_bytes,
                    qos: publish.qos,
                    retain: publish.retain,
                    expires_at: stored.expires_at,
                    key_slot: publish.key_slot,
                    terms: Default::default(),
                };
                for target in targets.iter().filter(|target| target.connection == Connection::GROUP) {
                    self.expect_key(target.queue, arrivals, publish, &found);
                }
                let opened_bytes = parts.map_or(0, |parts| parts.opened_bytes).max(stored.size_bytes);
                self.held.arrive(Arrived {
                    durable_at: stored.durable_at,
                    found,
                    each_bytes: (opened_bytes / count).saturating_add(publish.topic.size_bytes),
                    publisher: publish.publisher,
                    targets: targets.clone(),
                });
            }
        }
    }

    /// True if the message that ends at `end` is to be offered to the target when it is durable. A queue that has to
    /// read the log up to here anyway finds it there: which is so as long as its receiver takes nothing, and is asked
    /// only then.
    fn is_awaited(&mut self, target: &Target, end: Offset) -> bool {
        let queue = self.queues.get_mut(target.queue).filter(|queue| queue.connection == target.connection);
        let Some(queue) = queue.filter(|queue| queue.is_behind() && queue.group.is_none()) else { return true };
        queue.read_up_to(end);
        false
    }

    fn offer(&mut self, arrived: &Arrived) {
        for target in arrived.targets.iter() {
            let Some(terms) = target.terms_for(arrived.publisher).filter(|terms| terms.qos > 0) else { continue };
            let Some(queue) = self.queues.get_mut(target.queue) else { continue };
            let qos = arrived.found.qos.max(u8::from(queue.is_whole()));
            if qos == 0 || queue.connection != target.connection {
                continue;
            }
            let size_bytes = if queue.is_whole() { arrived.found.size_bytes } else { arrived.each_bytes };
            let mut found = Found { terms: terms.clone(), qos, size_bytes, ..arrived.found.clone() };
            if found.count > 1 && !queue.is_whole() {
                self.offer_each(target.queue, &found);
                continue;
            }
            let (party, offset) = (queue.party, found.offset);
            if let Some(slot) = queue.keys().and_then(|keys| keys.expected(offset)) {
                found.key_slot = slot;
            }
            match queue.offer(found) {
                Offered::Skipped => self.notices.add_one(party, NoticeKind::SlowReader, offset),
                Offered::Taken | Offered::Later => self.queues.make_ready(target.queue),
            }
        }
    }

    /// A queue that is not given entries whole is offered each message of one by itself. Not inlined, nor is what
    /// answers an entry: single messages need not go round it.
    #[inline(never)]
    fn offer_each(&mut self, handle: ids::Queue, entry: &Found) {
        let Some(queue) = self.queues.get_mut(handle) else { return };
        let (party, end) = (queue.party, entry_of(entry).end());
        for offset in (entry.offset.0..end.0).map(Offset) {
            match queue.offer(Found { offset, count: 1, ..entry.clone() }) {
                Offered::Taken => continue,
                Offered::Later => queue.read_up_to(end),
                Offered::Skipped => {
                    let count = end.0.saturating_sub(offset.0);
                    self.notices.add(Notice { party, kind: NoticeKind::SlowReader, first: offset, end, count });
                }
            }
            // What this one is, the others behind it are too.
            break;
        }
        self.queues.make_ready(handle);
    }

    /// A publisher is told that its message was taken, or why it was not.
    #[inline]
    fn answer(
        &mut self,
        publish: &Publish,
        parts: Option<&EntryParts>,
        position: LogPosition,
        refusal: Option<Refusal>,
    ) {
        if let Some(parts) = parts {
            return self.answer_entry(publish, parts, position, refusal);
        }
        let step = match publish.qos {
            // Who handed a message in asks for its outcome.
            _ if publish.connection == Connection::NONE => return,
            0 => return,
            1 => Step::Acknowledged,
            _ => Step::Received,
        };
        let Publish { connection, packet_identifier, .. } = *publish;
        let serial = self.receivers.serial_of(connection);
        let acknowledgement = Acknowledgement { connection, step, packet_identifier, refusal };
        self.held.until(position, serial, Departure::Acknowledgement(acknowledgement));
    }

    /// A producer is told what became of its entry.
    #[inline(never)]
    fn answer_entry(&mut self, publish: &Publish, parts: &EntryParts, position: LogPosition, refusal: Option<Refusal>) {
        let EntryParts { producer, sequence_first, sequence_last, .. } = *parts;
        let connection = publish.connection;
        let stored = publish.stored.filter(|_| refusal.is_none());
        let (topic, entry) = stored.map_or_else(Default::default, |stored| (stored.topic, stored.entry));
        let receipt = Receipt { connection, producer, sequence_first, sequence_last, topic, entry, refusal };
        let serial = self.receivers.begin(connection);
        self.held.until(position, serial, Departure::Receipt(receipt));
    }

    /// The peer takes a step: what it says of a message that was sent to it, or of one of its own.
    fn acknowledge(&mut self, acknowledgement: &Acknowledgement, next: Next) {
        let Acknowledgement { connection, step, packet_identifier, refusal } = *acknowledgement;
        let Some(handle) = self.receivers.on(connection) else { return };
        let Some(receiver) = self.receivers.get_mut(handle) else { return };
        let Stepped { follows, flight, was_given_up } = receiver.step(packet_identifier, step, refusal.is_some(), next);
        match (follows, flight) {
            (Follows::Done | Follows::Lost, Some(flight)) => {
                let lost = (follows == Follows::Lost && !was_given_up).then_some(NoticeKind::Refused);
                self.ended(handle, packet_identifier, &flight, lost);
            }
            (Follows::Tell(answer, refusal), flight) => {
                if step == Step::Released {
                    self.receivers.change(handle, |changes| changes.released.push(packet_identifier));
                }
                if let Some(flight) = flight.filter(|flight| flight.phase == Phase::Sent) {
                    // The receiver has the message: it is not sent again.
                    self.finish_record(handle, &flight);
                    self.receivers.change(handle, |changes| changes.received.push(packet_identifier));
                }
                self.follow(handle, answer, packet_identifier, refusal);
            }
            (Follows::Fault, _) => self.reports.blame(connection),
            (Follows::Done | Follows::Lost | Follows::Nothing, _) => {}
        }
    }

    /// The exchange about a message is over; `lost` says why, if the message did not reach its receiver.
    fn ended(&mut self, handle: ids::Receiver, packet_identifier: u16, flight: &Flight, lost: Option<NoticeKind>) {
        self.reports.complete();
        if flight.qos == 2 {
            self.receivers.change(handle, |changes| changes.completed.push(packet_identifier));
        }
        if flight.phase == Phase::Sent {
            self.finish_record(handle, flight);
        }
        if let Some(kind) = lost {
            let loser = self.receivers.get(handle).map(|receiver| receiver.loser(flight));
            self.notices.add_one(loser.unwrap_or_default(), kind, flight.offset);
        } else if let Some(receiver) = self.receivers.get_mut(handle) {
            receiver.acknowledged = receiver.acknowledged.wrapping_add(1);
        }
        self.make_queues_ready(handle);
    }

    /// The message need not be sent again.
    pub(super) fn finish_record(&mut self, handle: ids::Receiver, flight: &Flight) {
        if let Source::Group(party) = flight.source {
            return self.finish_shared(flight, party);
        }
        let offset = flight.offset;
        let Some(receiver) = self.receivers.get(handle) else { return };
        let Some(queue) = self.queues.get_mut(receiver.queue) else { return };
        if flight.source == Source::Retained {
            queue.resumed_owed.remove(&offset);
            self.receivers.change(handle, |changes| changes.owed_done.push(offset));
            return;
        }
        let was_known = queue.cursor.acknowledge(offset).is_some();
        if !queue.resumed.is_empty() && queue.resumed.remove(&offset).is_some() {
            // Acknowledged although it was not sent again: the record must not come back.
            queue.entries.retain(|entry| entry.offset != offset);
            if !was_known {
                let entry = Entry { offset, count: 1, number: 0, key_slot: KeySlot(0), not_before: Timestamp(0) };
                queue.cursor.acknowledge_ahead(&entry);
            }
        }
        self.receivers.change(handle, |_| {});
    }

    /// Gives up what is in flight under an identifier, with a notice.
    pub(super) fn give_up(&mut self, handle: ids::Receiver, packet_identifier: u16, offset: Offset, kind: NoticeKind) {
        let Some(receiver) = self.receivers.get_mut(handle) else { return };
        let flight = receiver.window.awaited(packet_identifier).filter(|flight| flight.offset == offset);
        let Some(flight) = flight else { return };
        let party = receiver.loser(&flight);
        let is_released = receiver.lose(packet_identifier, &flight);
        // Where it was sent on this connection, it is not only passed by.
        self.finish_record(handle, &flight);
        self.receivers.change(handle, |changes| {
            (if is_released { &mut changes.received } else { &mut changes.completed }).push(packet_identifier);
        });
        if is_released {
            self.follow(handle, Step::Released, packet_identifier, None);
        }
        self.notices.add_one(party, kind, offset);
    }

    /// A message that encode could not send (too large for the client, or gone) is done with.
    pub fn refuse(&mut self, connection: Connection, packet_identifier: u16, kind: NoticeKind) {
        let Some(handle) = self.receivers.on(connection) else { return };
        let Some(receiver) = self.receivers.get_mut(handle) else { return };
        if let Some(offset) = receiver.window.in_doubt(packet_identifier).map(|flight| flight.offset) {
            return self.give_up(handle, packet_identifier, offset, kind);
        }
        let Some((flight, was_given_up)) = receiver.end(packet_identifier) else { return };
        self.ended(handle, packet_identifier, &flight, (!was_given_up).then_some(kind));
    }

    /// A step that follows what this turn changes: it waits until that is durable.
    fn follow(&mut self, handle: ids::Receiver, step: Step, packet_identifier: u16, refusal: Option<Refusal>) {
        let Some(receiver) = self.receivers.get(handle) else { return };
        let (connection, is_durable) = (receiver.connection, receiver.party.is_durable());
        let serial = self.receivers.serial_of(connection);
        let told = Departure::Acknowledgement(Acknowledgement { connection, step, packet_identifier, refusal });
        if is_durable {
            self.held.until_progress(serial, told);
        } else {
            self.held.until(LogPosition(0), serial, told);
        }
    }
}

/// True if a step towards a publisher ends the exchange about its message.
fn is_end(told: &Acknowledgement) -> bool {
    match told.step {
        Step::Acknowledged | Step::Completed => true,
        Step::Received => told.refusal.is_some(),
        Step::Released => false,
    }
}
