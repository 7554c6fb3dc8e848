//! Queued messages are given to windows that have room.

use super::cursor::Holder;
use super::queue::{entry_of, Queue, Turn};
use super::{emit, slot, Dispatch, Session};
use crate::flow::state::{Flight, Owed, Phase, Source};
use crate::flow::{Delivery, Departure, Found, Notice, NoticeKind, Outgoing};
use crate::ids::{self, Offset, Timestamp};
use crate::limits;

/// What became of one entry.
enum Allotted {
    Sent(Delivery),
    Expired,
    /// It was acknowledged while it was looked up.
    Done,
    NoRoom,
}

impl Dispatch {
    /// Gives every ready queue one turn. A message whose Message Expiry Interval has passed is not sent and takes no
    /// packet identifier; one in flight since an earlier connection is sent again under its own, with DUP.
    pub fn allot(&mut self, outgoing: &mut Outgoing, now: Timestamp) {
        for _ in 0..self.ready.len() {
            let Some(handle) = self.ready.pop_front() else { break };
            let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
            let turn = if queue.is_some_and(|queue| queue.group.is_some()) {
                self.allot_group(handle, outgoing, now)
            } else {
                self.allot_queue(handle, outgoing, now)
            };
            let Some(queue) = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut) else { continue };
            if turn == Turn::GoesOn || queue.reads_on() {
                self.ready.push_back(handle);
            } else {
                queue.is_ready = false;
            }
        }
    }

    fn allot_queue(&mut self, handle: ids::Queue, outgoing: &mut Outgoing, now: Timestamp) -> Turn {
        let Some(queue) = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut) else { return Turn::Rests };
        let session = self.sessions.get_mut(slot(queue.connection.0)).and_then(Option::as_mut);
        let Some(session) = session else { return Turn::Rests };
        session.allotted_bytes = 0;
        let mut changed = false;
        let mut turn = Turn::Rests;
        while session.is_writable {
            if session.allotted_bytes > limits::ALLOT_BYTES_MAXIMUM {
                turn = Turn::GoesOn;
                break;
            }
            let is_owed = !queue.owed_entries.is_empty();
            let Some((found, allotted)) = next(queue, session, now) else { break };
            let delivery = match allotted {
                Allotted::NoRoom => break,
                Allotted::Done => continue,
                Allotted::Expired => {
                    let end = Offset(found.offset.0.saturating_add(u64::from(found.count)));
                    let (party, count) = (queue.party, u64::from(found.count));
                    let notice = Notice { party, kind: NoticeKind::Expired, first: found.offset, end, count };
                    self.notices.add(notice);
                    if is_owed {
                        session.changes.owed_done.push(found.offset);
                    }
                    changed = true;
                    continue;
                }
                Allotted::Sent(delivery) => delivery,
            };
            let size = usize::try_from(found.size_bytes).unwrap_or(usize::MAX);
            session.allotted_bytes = session.allotted_bytes.saturating_add(size);
            self.counters.deliveries = self.counters.deliveries.wrapping_add(1);
            self.counters.redeliveries = self.counters.redeliveries.wrapping_add(u64::from(delivery.dup));
            if delivery.qos == 2 && !delivery.dup && session.party.is_durable() {
                // The packet identifier has to be durable before the message leaves (docs/adr/0002-one-log.md).
                let source = if is_owed { Source::Retained } else { Source::Queue };
                session.changes.sent.push((delivery.packet_identifier, found.offset, source));
                changed = true;
                self.unpositioned.push((session.serial, Departure::Delivery(delivery)));
            } else {
                emit(outgoing, Departure::Delivery(delivery));
            }
        }
        if let Some(pack) = session.pack.as_mut().filter(|_| !queue.has_entries() && !queue.reads_on()) {
            pack.close();
        }
        if changed {
            let connection = queue.connection;
            self.change(connection, |_| {});
        }
        turn
    }
}

/// Takes the next entry of a queue that may be sent: what groups handed over and retained messages first, then in
/// offset order.
fn next(queue: &mut Queue, session: &mut Session, now: Timestamp) -> Option<(Found, Allotted)> {
    if let Some((found, packet_identifier)) = queue.handed_entries.pop_front() {
        let allotted = allot_handed(&found, packet_identifier, queue, session, now);
        if matches!(allotted, Allotted::NoRoom) {
            queue.handed_entries.push_front((found.clone(), packet_identifier));
        }
        return Some((found, allotted));
    }
    if let Some((found, owed)) = queue.owed_entries.front() {
        let allotted = allot_owed(found, owed, queue, session, now);
        if matches!(allotted, Allotted::NoRoom) {
            return Some((found.clone(), allotted));
        }
        let (found, owed) = queue.owed_entries.pop_front()?;
        queue.resumed_owed.remove(&owed.offset);
        return Some((found, allotted));
    }
    let found = queue.entries.pop_front()?;
    let allotted = allot_entry(&found, queue, session, now);
    if matches!(allotted, Allotted::NoRoom) {
        queue.entries.push_front(found.clone());
    }
    Some((found, allotted))
}

fn allot_handed(
    found: &Found,
    packet_identifier: u16,
    queue: &Queue,
    session: &mut Session,
    now: Timestamp,
) -> Allotted {
    let flight = session.window.awaited(packet_identifier).filter(|flight| flight.offset == found.offset);
    let Some(Flight { qos, source, .. }) = flight else { return Allotted::Done };
    if !session.window.has_quota() {
        return Allotted::NoRoom;
    }
    session.window.send_again(packet_identifier);
    let membership = session.memberships.iter_mut().find(|known| source == Source::Group(known.party));
    let terms = membership.as_ref().map(|membership| membership.terms.clone()).unwrap_or_default();
    if let Some(pack) = membership.and_then(|membership| membership.pack.as_mut()) {
        pack.send_again(now);
    }
    Allotted::Sent(Delivery {
        connection: queue.connection,
        packet_identifier,
        qos,
        dup: true,
        retain: found.retain && terms.retain_as_published,
        identifiers: terms.identifiers,
        offset: found.offset,
        location: found.location,
    })
}

fn allot_owed(found: &Found, owed: &Owed, queue: &Queue, session: &mut Session, now: Timestamp) -> Allotted {
    let again = queue.resumed_owed.get(&owed.offset).copied();
    if again.is_none() && found.has_expired(now) {
        return Allotted::Expired;
    }
    let qos = found.qos.min(owed.qos);
    let flight = Flight { offset: found.offset, qos, phase: Phase::Sent, source: Source::Retained };
    let Some(packet_identifier) = identifier(session, again, flight) else { return Allotted::NoRoom };
    Allotted::Sent(Delivery {
        connection: queue.connection,
        packet_identifier,
        qos,
        dup: again.is_some(),
        retain: true,
        identifiers: owed.identifier.map(|identifier| [identifier].into()),
        offset: found.offset,
        location: found.location,
    })
}

fn allot_entry(found: &Found, queue: &mut Queue, session: &mut Session, now: Timestamp) -> Allotted {
    let end = Offset(found.offset.0.saturating_add(u64::from(found.count)));
    let again = queue.resumed.get(&found.offset).copied();
    // Until everything is sent again that was in flight, whatever lies in between goes with it.
    if !session.takes_new() && again.is_none() && queue.resumed.is_empty() {
        return Allotted::NoRoom;
    }
    if again.is_none() && found.has_expired(now) {
        // Not only passed by: it would be found, and told, again if what lies before it is not acknowledged.
        queue.cursor.acknowledge_ahead(&entry_of(found));
        queue.cursor.pass(end);
        return Allotted::Expired;
    }
    let qos = again.map_or(found.qos.min(found.terms.qos), |resumed| resumed.qos);
    let flight = Flight { offset: found.offset, qos, phase: Phase::Sent, source: Source::Queue };
    let Some(packet_identifier) = identifier(session, again.map(|resumed| resumed.packet_identifier), flight) else {
        return Allotted::NoRoom;
    };
    match &mut session.pack {
        Some(pack) if again.is_some() => pack.send_again(now),
        Some(pack) => pack.give(found.offset, now),
        None => {}
    }
    if again.is_some() {
        queue.resumed.remove(&found.offset);
    }
    queue.cursor.deliver(entry_of(found), Holder(queue.connection.0));
    Allotted::Sent(Delivery {
        connection: queue.connection,
        packet_identifier,
        qos,
        // At QoS 2 what was sent is on record (docs/adr/0002-one-log.md), so everything else goes for the first time.
        dup: again.is_some() || qos == 1 && found.offset < queue.sent_before,
        retain: found.retain && found.terms.retain_as_published,
        identifiers: found.terms.identifiers.clone(),
        offset: found.offset,
        location: found.location,
    })
}

/// A packet identifier for a delivery: its old one, a new one, or 0 at QoS 0. `None` without room in the window.
fn identifier(session: &mut Session, again: Option<u16>, flight: Flight) -> Option<u16> {
    if let Some(identifier) = again {
        if !session.window.has_quota() {
            return None;
        }
        session.window.send_again(identifier);
        return Some(identifier);
    }
    if flight.qos == 0 {
        return Some(0);
    }
    session.window.send(flight)
}
