//! A queue gives so many messages and then waits until all of them are acknowledged: a pack.
//!
//! Owns: how many messages a queue has given since its last commit, how many of them are pending, since when it
//! waits; and what it does to a session to send a pack again or to give it up. Never: decides which of the two, or
//! how long is too long; the caller does, since it is the one that has a clock and a policy.
//!
//! Invariants:
//! 1. At most `maximum` messages are given between two commits, and once a pack is closed none.
//! 2. A pack is committed as soon as nothing of it is pending, and only then; the next one may begin in the same turn.
//! 3. What is given up is acknowledged on the receiver's behalf: it is not sent again. Its packet identifier may stay
//!    taken, so that neither the receiver's window nor a late acknowledgement is mistaken.
//!
//! Flow: allotment gives, admission finishes, the caller asks now and then what is overdue.

use super::receiver::Receiver;
use super::window::Window;
use super::Dispatch;
use crate::error::Result;
use crate::flow::state::{Phase, Source};
use crate::flow::{Departure, Step};
use crate::ids::{self, Connection, Offset, Party, Timestamp};
use crate::ranges::RangeSet;

/// What a queue has given to one session since its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    maximum: usize,
    taken: usize,
    pending: usize,
    first: Offset,
    is_closed: bool,
    sent_at: Timestamp,
}

/// A pack whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// To whom it was sent.
    pub receiver: ids::Receiver,
    /// Where that is.
    pub connection: Connection,
    /// The group that gave it; 0 for the session's own queue.
    pub group: Party,
    /// Its first message.
    pub first: Offset,
    /// How many of its messages are not acknowledged.
    pub pending: usize,
}

impl Pack {
    /// An empty pack, or, of what was `in_flight` on an earlier connection, one with that and nothing else.
    pub fn resume(maximum: usize, in_flight: impl Iterator<Item = Offset>) -> Pack {
        let (mut first, mut pending) = (None, 0_usize);
        for offset in in_flight {
            first = Some(first.map_or(offset, |known: Offset| known.min(offset)));
            pending = pending.saturating_add(1);
        }
        let first = first.unwrap_or_default();
        Pack { maximum, taken: pending, pending, first, is_closed: pending > 0, sent_at: Timestamp(0) }
    }

    /// How many messages it has at most.
    pub fn maximum(&self) -> usize {
        self.maximum
    }

    /// True if another message may be given.
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }

    /// Its first message and how many it has; nothing while there is none.
    pub fn content(&self) -> Option<(Offset, usize)> {
        (self.taken > 0).then_some((self.first, self.taken))
    }

    /// How many of its messages are neither acknowledged nor given up.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// One more message is given; to a closed pack only what lies between the messages that it resumes.
    pub fn give(&mut self, offset: Offset, now: Timestamp) {
        self.first = match (self.taken, self.is_closed) {
            (0, _) => offset,
            (_, true) => self.first.min(offset),
            _ => self.first,
        };
        self.taken = self.taken.saturating_add(1);
        self.pending = self.pending.saturating_add(1);
        self.is_closed |= self.taken >= self.maximum;
        self.sent_at = now;
    }

    /// One of its messages is sent again.
    pub fn send_again(&mut self, now: Timestamp) {
        self.sent_at = now;
    }

    /// Nothing more is at hand: what has been given is all of it.
    pub fn close(&mut self) {
        self.is_closed = self.taken > 0;
    }

    /// One of its messages is acknowledged or gone.
    pub fn finish(&mut self) {
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.commit();
        }
    }

    /// All of its messages are done with.
    pub fn commit(&mut self) {
        (self.taken, self.pending, self.is_closed) = (0, 0, false);
    }

    /// True if nothing has been sent of it for so long although something is pending.
    pub fn is_overdue(&self, now: Timestamp, timeout_us: u64) -> bool {
        self.pending > 0 && now.0.saturating_sub(self.sent_at.0) >= timeout_us
    }
}

impl Dispatch {
    /// The packs of which nothing was sent for `timeout_us`, and that are not acknowledged. Only time during which a
    /// connection takes bytes counts, and none while a packet of the pack waits for the disk.
    pub fn packs_overdue(&mut self, now: Timestamp, timeout_us: u64) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        let Dispatch { receivers, held, .. } = self;
        for (handle, receiver) in receivers.iter_mut() {
            let (connection, is_writable, window) = (receiver.connection, receiver.is_writable, &receiver.window);
            let groups = receiver.memberships.iter_mut();
            let groups = groups.filter_map(|membership| Some((membership.party, membership.pack.as_mut()?)));
            for (group, pack) in receiver.pack.iter_mut().map(|pack| (Party(0), pack)).chain(groups) {
                // What an earlier connection left has not been sent on this one yet.
                if !is_writable || pack.sent_at == Timestamp(0) {
                    pack.send_again(now);
                } else if pack.is_overdue(now, timeout_us) {
                    let mut waiting = held.departures(receiver.serial);
                    let is_held = waiting.any(|departure| belongs(departure, window, source_of(group)));
                    let found =
                        Overdue { receiver: handle, connection, group, first: pack.first, pending: pack.pending };
                    overdue.extend((!is_held).then_some(found));
                }
            }
        }
        overdue
    }

    /// When the first of the packs that are pending now will be overdue; `now` for one whose time does not run yet.
    /// Whatever is sent later has its time from then on.
    pub fn packs_due(&self, now: Timestamp, timeout_us: u64) -> Option<Timestamp> {
        let due = |receiver: &Receiver, pack: &Pack| match receiver.is_writable && pack.sent_at > Timestamp(0) {
            true => Timestamp(pack.sent_at.0.saturating_add(timeout_us)),
            false => now,
        };
        let dues = self.receivers.iter().flat_map(|(_, receiver)| {
            let of_groups = receiver.memberships.iter().filter_map(|membership| membership.pack.as_ref());
            let packs = receiver.pack.iter().chain(of_groups).filter(|pack| pack.pending > 0);
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
        Departure::Delivery(delivery) => delivery.packet_identifier,
        Departure::Acknowledgement(sent) if sent.step == Step::Released => sent.packet_identifier,
        _ => return false,
    };
    window.flight(packet_identifier).is_some_and(|flight| flight.source == source)
}
