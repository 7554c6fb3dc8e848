//! What arrived is taken over: acknowledgements at once, messages and answers when they are durable.

use super::cursor::Entry;
use super::queue::Offered;
use super::window::Stepped;
use super::{emit, slot, Arrived, Dispatch};
use crate::flow::exchange::{Follows, Next};
use crate::flow::state::{Flight, Phase, Source};
use crate::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Found, Notice, NoticeKind, Outgoing, Publish, Refusal, Step, Stored,
};
use crate::ids::{Connection, KeySlot, LogPosition, Offset, Timestamp};

impl Dispatch {
    /// Takes over one turn. Acknowledgements of subscribers count at once; messages, and what their publishers are
    /// owed, wait until they are durable. `end` is the log's present end: repeated messages wait for that. `next` is
    /// the table of the protocol in which it all came.
    pub fn admit(&mut self, arrivals: &Arrivals, end: LogPosition, next: Next) {
        for acknowledgement in &arrivals.acknowledgements {
            self.acknowledge(acknowledgement, next);
        }
        for publish in &arrivals.publishes {
            match (publish.fate, publish.stored) {
                (Fate::Accepted, Some(stored)) => self.accept(arrivals, publish, stored),
                (Fate::Accepted, None) => {}
                (Fate::Duplicate, _) => self.answer(publish, end, None),
                (Fate::Refused(refusal), _) => {
                    self.refused.insert(publish.connection, refusal);
                    self.counters.refused = self.counters.refused.wrapping_add(1);
                    self.answer(publish, LogPosition(0), Some(refusal));
                }
                (Fate::Denied, _) => self.answer(publish, LogPosition(0), Some(Refusal::NotAuthorized)),
            }
        }
    }

    /// What has become durable moves on: publishers get their answers, queues their messages.
    pub fn settle(&mut self, durable: Offset, position: LogPosition, outgoing: &mut Outgoing) {
        self.durable = self.durable.max(durable);
        while self.awaiting.front().is_some_and(|waiting| waiting.position <= position) {
            let Some(waiting) = self.awaiting.pop_front() else { break };
            if let Departure::Acknowledgement(sent) = &waiting.packet {
                self.note_answer(waiting.serial, sent);
            }
            if self.is_current(&waiting.packet, waiting.serial) {
                emit(outgoing, waiting.packet);
            }
        }
        while self.arrived.front().is_some_and(|arrived| arrived.durable_at <= position) {
            let Some(arrived) = self.arrived.pop_front() else { break };
            self.settled_total = self.settled_total.wrapping_add(1);
            self.offer(&arrived);
        }
    }

    fn accept(&mut self, arrivals: &Arrivals, publish: &Publish, stored: Stored) {
        if publish.qos > 0 {
            self.answer(publish, stored.durable_at, None);
            if let Some(targets) = publish.targets.as_ref().filter(|all| all.iter().any(|one| one.terms.qos > 0)) {
                let found = Found {
                    offset: stored.offset,
                    count: 1,
                    location: stored.location,
                    size_bytes: stored.size_bytes,
                    qos: publish.qos,
                    retain: publish.retain,
                    expires_at: stored.expires_at,
                    key_slot: publish.key_slot,
                    terms: Default::default(),
                };
                for target in targets.iter().filter(|target| target.connection == Connection::GROUP) {
                    self.expect_key(target.queue, arrivals, publish, stored.offset);
                }
                self.arrived_total = self.arrived_total.wrapping_add(1);
                self.arrived.push_back(Arrived {
                    durable_at: stored.durable_at,
                    found,
                    publisher: publish.publisher,
                    targets: targets.clone(),
                });
            }
        }
    }

    fn offer(&mut self, arrived: &Arrived) {
        for target in arrived.targets.iter() {
            let terms = target.terms_for(arrived.publisher).filter(|terms| terms.qos.min(arrived.found.qos) > 0);
            let Some(terms) = terms else { continue };
            let Some(queue) = self.queues.get_mut(slot(target.queue.0)).and_then(Option::as_mut) else { continue };
            if queue.connection != target.connection {
                continue;
            }
            let mut found = Found { terms: terms.clone(), ..arrived.found.clone() };
            let (party, offset) = (queue.party, found.offset);
            if let Some(slot) = queue.keys().and_then(|keys| keys.expected(offset)) {
                found.key_slot = slot;
            }
            match queue.offer(found) {
                Offered::Skipped => {
                    let end = Offset(offset.0.saturating_add(1));
                    self.notices.add(Notice { party, kind: NoticeKind::SlowReader, first: offset, end, count: 1 });
                }
                Offered::Taken | Offered::Later => self.make_ready(target.queue),
            }
        }
    }

    /// A publisher is told that its message was taken, or why it was not.
    fn answer(&mut self, publish: &Publish, position: LogPosition, refusal: Option<Refusal>) {
        let step = match publish.qos {
            0 => return,
            1 => Step::Acknowledged,
            _ => Step::Received,
        };
        let serial = self.serial_of(publish.connection);
        let acknowledgement = Acknowledgement {
            connection: publish.connection,
            step,
            packet_identifier: publish.packet_identifier,
            refusal,
        };
        self.push_awaiting(position, serial, Departure::Acknowledgement(acknowledgement));
    }

    /// The peer takes a step: what it says of a message that was sent to it, or of one of its own.
    fn acknowledge(&mut self, acknowledgement: &Acknowledgement, next: Next) {
        let Acknowledgement { connection, step, packet_identifier, refusal } = *acknowledgement;
        let Some(session) = self.session_mut(connection) else { return };
        let Stepped { follows, flight, was_given_up } = session.step(packet_identifier, step, refusal.is_some(), next);
        match (follows, flight) {
            (Follows::Done | Follows::Lost, Some(flight)) => {
                let lost = (follows == Follows::Lost && !was_given_up).then_some(NoticeKind::Refused);
                self.ended(connection, packet_identifier, &flight, lost);
            }
            (Follows::Tell(answer, refusal), flight) => {
                if step == Step::Released {
                    self.change(connection, |changes| changes.released.push(packet_identifier));
                }
                if let Some(flight) = flight.filter(|flight| flight.phase == Phase::Sent) {
                    // The receiver has the message: it is not sent again.
                    self.finish_record(connection, &flight);
                    self.change(connection, |changes| changes.received.push(packet_identifier));
                }
                self.follow(connection, answer, packet_identifier, refusal);
            }
            (Follows::Fault, _) => drop(self.at_fault.insert(connection)),
            (Follows::Done | Follows::Lost | Follows::Nothing, _) => {}
        }
    }

    /// The exchange about a message is over; `lost` says why, if the message did not reach its receiver.
    fn ended(&mut self, connection: Connection, packet_identifier: u16, flight: &Flight, lost: Option<NoticeKind>) {
        self.counters.completed = self.counters.completed.wrapping_add(1);
        if flight.qos == 2 {
            self.change(connection, |changes| changes.completed.push(packet_identifier));
        }
        if flight.phase == Phase::Sent {
            self.finish_record(connection, flight);
        }
        let Some(session) = self.session(connection) else { return };
        let (queue, party) = (session.queue, session.loser(flight));
        if let Some(kind) = lost {
            let end = Offset(flight.offset.0.saturating_add(1));
            self.notices.add(Notice { party, kind, first: flight.offset, end, count: 1 });
        }
        self.make_ready(queue);
        self.make_groups_ready(connection);
    }

    /// The message need not be sent again.
    pub(super) fn finish_record(&mut self, connection: Connection, flight: &Flight) {
        if let Source::Group(party) = flight.source {
            return self.finish_shared(flight, party);
        }
        let offset = flight.offset;
        let Some(session) = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut) else { return };
        let queue = self.queues.get_mut(slot(session.queue.0)).and_then(Option::as_mut);
        let Some(queue) = queue else { return };
        if flight.source == Source::Retained {
            queue.resumed_owed.remove(&offset);
            self.change(connection, |changes| changes.owed_done.push(offset));
            return;
        }
        let was_known = queue.cursor.acknowledge(offset).is_some();
        if !queue.resumed.is_empty() && queue.resumed.remove(&offset).is_some() {
            // Acknowledged although it was not sent again: the record must not come back.
            queue.entries.retain(|entry| entry.offset != offset);
            if !was_known {
                let entry = Entry { offset, count: 1, key_slot: KeySlot(0), not_before: Timestamp(0) };
                queue.cursor.acknowledge_ahead(&entry);
            }
        }
        if !session.is_changed {
            session.is_changed = true;
            self.changed.push(connection);
        }
    }

    /// Gives up what is in flight under an identifier, with a notice.
    pub(super) fn give_up(&mut self, connection: Connection, packet_identifier: u16, offset: Offset, kind: NoticeKind) {
        let Some(session) = self.session_mut(connection) else { return };
        let handle = session.queue;
        let Some(flight) = session.window.awaited(packet_identifier).filter(|flight| flight.offset == offset) else {
            return;
        };
        let party = session.loser(&flight);
        session.end(packet_identifier);
        match flight.source {
            Source::Group(group) => self.finish_shared(&flight, group),
            // Where it was sent on this connection, it is not only passed by.
            Source::Queue => drop(self.queue_mut(handle).map(|queue| queue.cursor.acknowledge(offset))),
            Source::Retained => {}
        }
        self.change(connection, |changes| {
            changes.completed.push(packet_identifier);
            if flight.source == Source::Retained {
                changes.owed_done.push(offset);
            }
        });
        self.notices.add(Notice { party, kind, first: offset, end: Offset(offset.0.saturating_add(1)), count: 1 });
    }

    /// A message that encode could not send (too large for the client, or gone) is done with.
    pub fn refuse(&mut self, connection: Connection, packet_identifier: u16, kind: NoticeKind) {
        let Some(session) = self.session_mut(connection) else { return };
        let Some((flight, was_given_up)) = session.end(packet_identifier) else { return };
        self.ended(connection, packet_identifier, &flight, (!was_given_up).then_some(kind));
    }

    /// A step that follows what this turn changes: it waits until that is durable.
    fn follow(&mut self, connection: Connection, step: Step, packet_identifier: u16, refusal: Option<Refusal>) {
        let Some(session) = self.session(connection) else { return };
        let (serial, is_durable) = (session.serial, session.party.is_durable());
        let packet = Departure::Acknowledgement(Acknowledgement { connection, step, packet_identifier, refusal });
        if is_durable {
            self.unpositioned.push((serial, packet));
        } else {
            self.push_awaiting(LogPosition(0), serial, packet);
        }
    }

    fn note_answer(&mut self, serial: u32, sent: &Acknowledgement) {
        let ends = match sent.step {
            Step::Acknowledged | Step::Completed => true,
            Step::Received => sent.refusal.is_some(),
            Step::Released => false,
        };
        if ends && self.serial_of(sent.connection) == serial {
            self.counters.answered = self.counters.answered.wrapping_add(1);
            *self.answered.entry(sent.connection).or_default() += 1;
        }
    }

    fn is_current(&self, departure: &Departure, serial: u32) -> bool {
        let connection = match departure {
            Departure::Delivery(delivery) => delivery.connection,
            Departure::Acknowledgement(acknowledgement) => acknowledgement.connection,
            Departure::Encoded(connection, _) => *connection,
        };
        self.serial_of(connection) == serial
    }
}
