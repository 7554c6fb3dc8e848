//! What is done about packs that wait too long.
//!
//! Owns: what it does to a receiver to send a pack again or to give it up. Never: decides which of the two, or how long
//! is too long; the caller does, since it is the one that has a clock and a policy.
//!
//! Invariant: what is given up is acknowledged on the receiver's behalf, and is not sent again. Its packet identifier
//! may stay taken, so that neither the receiver's window nor a late acknowledgement is mistaken.

use super::pack::Pack;
use super::receiver::Receiver;
use super::window::Window;
use super::Deliveries;
use crate::error::Result;
use crate::flow::state::{Phase, Source};
use crate::flow::{Departure, Step};
use crate::ids::{self, Connection, Offset, Party, Timestamp};
use crate::ranges::RangeSet;

/// A pack whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// To whom it was sent.
    pub receiver: ids::Receiver,
    /// Where that is.
    pub connection: Connection,
    /// The group that gave it; 0 for the receiver's own queue.
    pub group: Party,
    /// Its first message.
    pub first: Offset,
    /// How many of its messages are not acknowledged.
    pub pending: usize,
}

impl Deliveries {
    /// The packs of which nothing was sent for `timeout_us`, and that are not acknowledged. Only time during which a
    /// connection takes bytes counts, and none while a packet of the pack waits for the disk.
    pub fn packs_overdue(&mut self, now: Timestamp, timeout_us: u64) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        let Deliveries { receivers, held, .. } = self;
        for (handle, receiver) in receivers.iter_mut() {
            let (connection, is_writable, window) = (receiver.connection, receiver.is_writable, &receiver.window);
            let groups = receiver.memberships.iter_mut();
            let groups = groups.filter_map(|membership| Some((membership.party, membership.pack.as_mut()?)));
            for (group, pack) in receiver.pack.iter_mut().map(|pack| (Party(0), pack)).chain(groups) {
                // What an earlier connection left has not been sent on this one yet.
                if !is_writable || pack.sent_at() == Timestamp(0) {
                    pack.send_again(now);
                } else if pack.is_overdue(now, timeout_us) {
                    let mut waiting = held.departures(receiver.serial);
                    let is_held = waiting.any(|departure| belongs(departure, window, source_of(group)));
                    let found =
                        Overdue { receiver: handle, connection, group, first: pack.first(), pending: pack.pending() };
                    overdue.extend((!is_held).then_some(found));
                }
            }
        }
        overdue
    }

    /// When the first of the packs that are pending now will be overdue; `now` for one whose time does not run yet.
    /// Whatever is sent later has its time from then on.
    pub fn packs_due(&self, now: Timestamp, timeout_us: u64) -> Option<Timestamp> {
        let due = |receiver: &Receiver, pack: &Pack| match receiver.is_writable && pack.sent_at() > Timestamp(0) {
            true => Timestamp(pack.sent_at().0.saturating_add(timeout_us)),
            false => now,
        };
        let dues = self.receivers.iter().flat_map(|(_, receiver)| {
            let of_groups = receiver.memberships.iter().filter_map(|membership| membership.pack.as_ref());
            let packs = receiver.pack.iter().chain(of_groups).filter(|pack| pack.pending() > 0);
            packs.map(move |pack| due(receiver, pack))
        });
        dues.min()
    }

    /// A pack's time begins again. With `resend` what is pending of it goes out once more under its packet identifiers
    /// and in its order, or are released once more where they were received; and nothing is added to it.
    pub fn retry_pack(&mut self, handle: ids::Receiver, group: Party, resend: bool, now: Timestamp) -> Result<()> {
        let source = source_of(group);
        let receiver = self.receivers.find(handle)?;
        let Some(pack) = receiver.pack_of(source) else { return Ok(()) };
        pack.send_again(now);
        if !resend {
            return Ok(());
        }
        // Nothing new goes before what is sent again.
        pack.close();
        let (queue, connection, pending) = (receiver.queue, receiver.connection, receiver.pending_of(source));
        let (sent, received): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, flight)| flight.phase == Phase::Sent);
        for (packet_identifier, _) in &sent {
            receiver.window.send_later(*packet_identifier);
        }
        self.queues.find(queue)?.send_again(&sent);
        for (packet_identifier, _) in received {
            self.release(connection, packet_identifier);
        }
        self.queues.make_ready(queue);
        Ok(())
    }

    /// What is pending of a pack is done with, and the next one may begin; returns the messages that the receiver has
    /// not said to have. With `keeps_identifiers` the packet identifiers of those stay taken until they are
    /// acknowledged or the connection ends.
    pub fn give_up_pack(&mut self, handle: ids::Receiver, group: Party, keeps_identifiers: bool) -> Result<RangeSet> {
        let source = source_of(group);
        let mut given_up = RangeSet::default();
        for (packet_identifier, flight) in self.receivers.find(handle)?.pending_of(source) {
            let receiver = self.receivers.find(handle)?;
            receiver.window.give_up(packet_identifier);
            if flight.phase != Phase::Sent {
                // The receiver has the message; the exchange may still go on to its end.
                continue;
            }
            if !keeps_identifiers {
                receiver.end(packet_identifier);
            }
            given_up.insert(flight.offset.0, flight.offset.0.saturating_add(1));
            self.finish_record(handle, &flight);
            if flight.qos == 2 {
                self.receivers.change(handle, |changes| changes.completed.push(packet_identifier));
            }
        }
        if let Some(pack) = self.receivers.find(handle)?.pack_of(source) {
            pack.commit();
        }
        self.make_queues_ready(handle);
        Ok(given_up)
    }

    /// What has been given of a pack and not committed; `None` for a receiver without packs.
    pub fn pack(&mut self, handle: ids::Receiver, group: Party) -> Option<&Pack> {
        self.receivers.get_mut(handle)?.pack_of(source_of(group)).map(|pack| &*pack)
    }
}

fn source_of(group: Party) -> Source {
    if group == Party(0) {
        Source::Queue
    } else {
        Source::Group(group)
    }
}

/// True if what leaves is part of an exchange about a message from there.
fn belongs(departure: &Departure, window: &Window, source: Source) -> bool {
    let packet_identifier = match departure {
        Departure::Sending(sending) => sending.packet_identifier,
        Departure::Acknowledgement(sent) if sent.step == Step::Released => sent.packet_identifier,
        _ => return false,
    };
    window.flight(packet_identifier).is_some_and(|flight| flight.source == source)
}
