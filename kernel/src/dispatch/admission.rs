//! What arrived is taken over: acknowledgements at once, messages and answers when they are durable.

use super::cursor::Entry;
use super::queue::Offered;
use super::{emit, slot, Arrived, Dispatch};
use crate::flow::state::{Flight, Phase, Source};
use crate::flow::{
    Acknowledgement, AcknowledgementKind, Arrivals, Fate, Found, Notice, NoticeKind, Outgoing, Packet, Publish, Stored,
};
use crate::ids::{Connection, KeySlot, LogPosition, Offset, Timestamp};

/// MQTT 5 Not authorized: what a publisher is told of a message that it may not publish.
const NOT_AUTHORIZED: u8 = 0x87;

impl Dispatch {
    /// Takes over one turn. Acknowledgements of subscribers count at once; messages, and what their publishers are
    /// owed, wait until they are durable. `end` is the log's present end: repeated messages wait for that.
    pub fn admit(&mut self, arrivals: &Arrivals, end: LogPosition) {
        for acknowledgement in &arrivals.acknowledgements {
            self.acknowledge(acknowledgement);
        }
        for publish in &arrivals.publishes {
            match (publish.fate, publish.stored) {
                (Fate::Accepted, Some(stored)) => self.accept(arrivals, publish, stored),
                (Fate::Accepted, None) => {}
                (Fate::Duplicate, _) => self.answer(publish, end, 0),
                (Fate::Refused(reason_code), _) => {
                    self.refused.insert(publish.connection, reason_code);
                    self.counters.refused = self.counters.refused.wrapping_add(1);
                    self.answer(publish, LogPosition(0), reason_code);
                }
                (Fate::Denied, _) => self.answer(publish, LogPosition(0), NOT_AUTHORIZED),
            }
        }
    }

    /// What has become durable moves on: publishers get their answers, queues their messages.
    pub fn settle(&mut self, durable: Offset, position: LogPosition, outgoing: &mut Outgoing) {
        self.durable = self.durable.max(durable);
        while self.awaiting.front().is_some_and(|waiting| waiting.position <= position) {
            let Some(waiting) = self.awaiting.pop_front() else { break };
            if let Packet::Acknowledgement(sent) = &waiting.packet {
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
            self.answer(publish, stored.durable_at, 0);
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

    /// PUBACK or PUBREC for a message of a publisher.
    fn answer(&mut self, publish: &Publish, position: LogPosition, reason_code: u8) {
        let kind = match publish.qos {
            // Who handed a message in asks for its outcome.
            _ if publish.connection == Connection::NONE => return,
            0 => return,
            1 => AcknowledgementKind::Puback,
            _ => AcknowledgementKind::Pubrec,
        };
        let serial = self.serial_of(publish.connection);
        let acknowledgement = Acknowledgement {
            connection: publish.connection,
            kind,
            packet_identifier: publish.packet_identifier,
            reason_code,
        };
        self.push_awaiting(position, serial, Packet::Acknowledgement(acknowledgement));
    }

    fn acknowledge(&mut self, acknowledgement: &Acknowledgement) {
        let Acknowledgement { connection, kind, packet_identifier, reason_code } = *acknowledgement;
        if self.session(connection).is_some_and(|session| session.window.contradicts(packet_identifier, kind)) {
            self.at_fault.insert(connection);
            return;
        }
        let refused = (reason_code >= 0x80).then_some(NoticeKind::Refused);
        match kind {
            AcknowledgementKind::Puback => self.complete(connection, packet_identifier, refused),
            AcknowledgementKind::Pubcomp => self.complete(connection, packet_identifier, None),
            AcknowledgementKind::Pubrec if refused.is_some() => self.complete(connection, packet_identifier, refused),
            AcknowledgementKind::Pubrec => self.receive(connection, packet_identifier),
            AcknowledgementKind::Pubrel => {
                self.change(connection, |changes| changes.released.push(packet_identifier));
                self.follow(connection, AcknowledgementKind::Pubcomp, packet_identifier, reason_code);
            }
        }
    }

    /// PUBREC: the receiver has the message, so the record is done with; PUBREL goes out when that is durable.
    fn receive(&mut self, connection: Connection, packet_identifier: u16) {
        let Some(session) = self.session_mut(connection) else { return };
        let Some(flight) = session.window.flight(packet_identifier) else {
            // Packet Identifier not found; the exchange still has to end [MQTT-4.3.3-1].
            self.follow(connection, AcknowledgementKind::Pubrel, packet_identifier, 0x92);
            return;
        };
        session.window.receive(packet_identifier);
        if flight.phase == Phase::Published {
            self.finish_record(connection, &flight);
            self.change(connection, |changes| changes.received.push(packet_identifier));
        }
        self.follow(connection, AcknowledgementKind::Pubrel, packet_identifier, 0);
    }

    /// The exchange of a packet identifier is over; `lost` says why, if the message did not reach its receiver.
    fn complete(&mut self, connection: Connection, packet_identifier: u16, lost: Option<NoticeKind>) {
        let Some(session) = self.session_mut(connection) else { return };
        let Some((flight, was_given_up)) = session.end(packet_identifier) else { return };
        let (queue, party) = (session.queue, session.loser(&flight));
        self.counters.completed = self.counters.completed.wrapping_add(1);
        if flight.qos == 2 {
            self.change(connection, |changes| changes.completed.push(packet_identifier));
        }
        if flight.phase == Phase::Published {
            self.finish_record(connection, &flight);
        }
        if let Some(kind) = lost.filter(|_| !was_given_up) {
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
        let Some(handle) = self.session(connection).map(|session| session.queue) else { return };
        let Ok(queue) = self.queue_mut(handle) else { return };
        if flight.source == Source::Retained {
            queue.resumed_owed.remove(&offset);
            self.change(connection, |changes| changes.owed_done.push(offset));
            return;
        }
        let was_known = queue.cursor.acknowledge(offset).is_some();
        if queue.resumed.remove(&offset).is_some() {
            // Acknowledged although it was not sent again: the record must not come back.
            queue.entries.retain(|entry| entry.offset != offset);
            if !was_known {
                let entry = Entry { offset, count: 1, key_slot: KeySlot(0), not_before: Timestamp(0) };
                queue.cursor.acknowledge_ahead(&entry);
            }
        }
        self.change(connection, |_| {});
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
        self.complete(connection, packet_identifier, Some(kind));
    }

    /// An acknowledgement that follows what this turn changes: it waits until that is durable.
    fn follow(&mut self, connection: Connection, kind: AcknowledgementKind, packet_identifier: u16, reason_code: u8) {
        let Some(session) = self.session(connection) else { return };
        let (serial, is_durable) = (session.serial, session.party.is_durable());
        let packet = Packet::Acknowledgement(Acknowledgement { connection, kind, packet_identifier, reason_code });
        if is_durable {
            self.unpositioned.push((serial, packet));
        } else {
            self.push_awaiting(LogPosition(0), serial, packet);
        }
    }

    fn note_answer(&mut self, serial: u32, sent: &Acknowledgement) {
        let ends = match sent.kind {
            AcknowledgementKind::Puback | AcknowledgementKind::Pubcomp => true,
            AcknowledgementKind::Pubrec => sent.reason_code >= 0x80,
            AcknowledgementKind::Pubrel => false,
        };
        if ends && self.serial_of(sent.connection) == serial {
            self.counters.answered = self.counters.answered.wrapping_add(1);
            *self.answered.entry(sent.connection).or_default() += 1;
        }
    }

    fn is_current(&self, packet: &Packet, serial: u32) -> bool {
        let connection = match packet {
            Packet::Publish(delivery) => delivery.connection,
            Packet::Acknowledgement(acknowledgement) => acknowledgement.connection,
            Packet::Encoded(connection, _) => *connection,
        };
        self.serial_of(connection) == serial
    }
}
