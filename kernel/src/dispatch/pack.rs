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

use super::window::{Stepped, Window};
use super::{no_session, slot, Dispatch, Session};
use crate::error::Result;
use crate::flow::exchange::{Follows, Next, State};
use crate::flow::state::{Flight, Phase, Source};
use crate::flow::{Acknowledgement, Departure, Step};
use crate::ids::{Connection, LogPosition, Offset, Party, Timestamp};
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
        for (session, index) in self.sessions.iter_mut().zip(0_u32..) {
            let Some(session) = session else { continue };
            let (connection, is_writable, window) = (Connection(index), session.is_writable, &session.window);
            let groups = session.memberships.iter_mut();
            let groups = groups.filter_map(|membership| Some((membership.party, membership.pack.as_mut()?)));
            for (group, pack) in session.pack.iter_mut().map(|pack| (Party(0), pack)).chain(groups) {
                // What an earlier connection left has not been sent on this one yet.
                if !is_writable || pack.sent_at == Timestamp(0) {
                    pack.send_again(now);
                } else if pack.is_overdue(now, timeout_us) {
                    let positioned = self.awaiting.iter().map(|waiting| (waiting.serial, &waiting.packet));
                    let others = self.unpositioned.iter().map(|(serial, packet)| (*serial, packet));
                    let waits = positioned
                        .chain(others)
                        .any(|(serial, packet)| serial == session.serial && belongs(packet, window, source_of(group)));
                    let found = Overdue { connection, group, first: pack.first, pending: pack.pending };
                    overdue.extend((!waits).then_some(found));
                }
            }
        }
        overdue
    }

    /// When the first of the packs that are pending now will be overdue; `now` for one whose time does not run yet.
    /// Whatever is sent later has its time from then on.
    pub fn packs_due(&self, now: Timestamp, timeout_us: u64) -> Option<Timestamp> {
        let due = |session: &Session, pack: &Pack| match session.is_writable && pack.sent_at > Timestamp(0) {
            true => Timestamp(pack.sent_at.0.saturating_add(timeout_us)),
            false => now,
        };
        let sessions = self.sessions.iter().flatten();
        let dues = sessions.flat_map(|session| {
            let of_groups = session.memberships.iter().filter_map(|membership| membership.pack.as_ref());
            let packs = session.pack.iter().chain(of_groups).filter(|pack| pack.pending > 0);
            packs.map(move |pack| due(session, pack))
        });
        dues.min()
    }

    /// A pack's time begins again. With `resend` what is pending of it goes out once more under its packet identifiers
    /// and in its order, or are released once more where they were received; and nothing is added to it.
    pub fn retry_pack(&mut self, connection: Connection, group: Party, resend: bool, now: Timestamp) -> Result<()> {
        let source = source_of(group);
        let session = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut);
        let session = session.ok_or_else(|| no_session(connection))?;
        let Some(pack) = session.pack_of(source) else { return Ok(()) };
        pack.send_again(now);
        if !resend {
            return Ok(());
        }
        // Nothing new goes before what is sent again.
        pack.close();
        let (handle, serial, pending) = (session.queue, session.serial, session.pending_of(source));
        let (published, received): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, flight)| flight.phase == Phase::Sent);
        for (packet_identifier, _) in &published {
            session.window.send_later(*packet_identifier);
        }
        self.queue_mut(handle)?.send_again(&published);
        for (packet_identifier, _) in received {
            let step = Step::Released;
            let told = Acknowledgement { connection, step, packet_identifier, refusal: None };
            self.push_awaiting(LogPosition(0), serial, Departure::Acknowledgement(told));
        }
        self.make_ready(handle);
        Ok(())
    }

    /// What is pending of a pack is done with, and the next one may begin; returns the messages that the receiver has
    /// not said to have. With `keeps_identifiers` the packet identifiers of those stay taken until they are
    /// acknowledged or the connection ends.
    pub fn give_up_pack(&mut self, connection: Connection, group: Party, keeps_identifiers: bool) -> Result<RangeSet> {
        let source = source_of(group);
        let session = self.session_mut(connection).ok_or_else(|| no_session(connection))?;
        let (handle, flights) = (session.queue, session.pending_of(source));
        let mut given_up = RangeSet::default();
        for (packet_identifier, flight) in flights {
            let is_published = flight.phase == Phase::Sent;
            let Some(session) = self.session_mut(connection) else { break };
            session.window.give_up(packet_identifier);
            if !is_published {
                // The receiver has the message; the exchange may still go on to its end.
                continue;
            }
            if !keeps_identifiers {
                session.end(packet_identifier);
            }
            given_up.insert(flight.offset.0, flight.offset.0.saturating_add(1));
            self.finish_record(connection, &flight);
            if flight.qos == 2 {
                self.change(connection, |changes| changes.completed.push(packet_identifier));
            }
        }
        if let Some(pack) = self.session_mut(connection).and_then(|session| session.pack_of(source)) {
            pack.commit();
        }
        self.make_ready(handle);
        self.make_groups_ready(connection);
        Ok(given_up)
    }

    /// What has been given of a pack and not committed; `None` for a session without packs.
    pub fn pack(&mut self, connection: Connection, group: Party) -> Option<&Pack> {
        self.session_mut(connection)?.pack_of(source_of(group)).map(|pack| &*pack)
    }
}

impl Session {
    /// The receiver takes a step in the exchange of a packet identifier.
    #[inline]
    pub(super) fn step(&mut self, packet_identifier: u16, step: Step, is_refused: bool, next: Next) -> Stepped {
        if step == Step::Released {
            // It is about a message from the receiver, of which nothing is in flight to it.
            let (_, follows) = next(State::Free, step, is_refused);
            return Stepped { follows, flight: None, was_given_up: false };
        }
        let stepped = self.window.step(packet_identifier, step, is_refused, next);
        if let (Follows::Done | Follows::Lost, Some(flight)) = (stepped.follows, &stepped.flight) {
            self.note_end(flight, stepped.was_given_up);
        }
        stepped
    }

    /// The exchange of a packet identifier ends from this side; returns it, and whether it was given up before.
    pub(super) fn end(&mut self, packet_identifier: u16) -> Option<(Flight, bool)> {
        let (flight, was_given_up) = self.window.complete(packet_identifier)?;
        self.note_end(&flight, was_given_up);
        Some((flight, was_given_up))
    }

    #[inline]
    fn note_end(&mut self, flight: &Flight, was_given_up: bool) {
        let pack = match flight.source {
            Source::Queue => self.pack.as_mut(),
            Source::Retained => None,
            Source::Group(party) => self.membership_of(party).and_then(|membership| {
                membership.in_flight = membership.in_flight.saturating_sub(1);
                membership.pack.as_mut()
            }),
        };
        if let Some(pack) = pack.filter(|_| !was_given_up) {
            pack.finish();
        }
    }

    /// True if its own queue may give it something new.
    pub(super) fn takes_new(&self) -> bool {
        self.pack.as_ref().is_none_or(Pack::is_open)
    }

    /// Whose the message is as long as nobody has acknowledged it.
    pub(super) fn loser(&self, flight: &Flight) -> Party {
        match flight.source {
            Source::Group(party) => party,
            _ => self.party,
        }
    }

    /// The pack in which messages from there are.
    pub(super) fn pack_of(&mut self, source: Source) -> Option<&mut Pack> {
        match source {
            Source::Queue => self.pack.as_mut(),
            Source::Retained => None,
            Source::Group(party) => self.membership_of(party)?.pack.as_mut(),
        }
    }

    /// What is in flight from there and not given up, in the order in which it was sent.
    fn pending_of(&self, source: Source) -> Vec<(u16, Flight)> {
        let mut pending: Vec<(u16, Flight)> =
            self.window.pending().filter(|(_, flight)| flight.source == source).collect();
        let last = self.window.last();
        pending.sort_unstable_by_key(|(identifier, _)| identifier.wrapping_sub(last).wrapping_sub(1));
        pending
    }
}

fn source_of(group: Party) -> Source {
    if group == Party(0) {
        Source::Queue
    } else {
        Source::Group(group)
    }
}

/// True if the packet is part of an exchange of this source.
fn belongs(packet: &Departure, window: &Window, source: Source) -> bool {
    let packet_identifier = match packet {
        Departure::Delivery(delivery) => delivery.packet_identifier,
        Departure::Acknowledgement(sent) if sent.step == Step::Released => sent.packet_identifier,
        _ => return false,
    };
    window.flight(packet_identifier).is_some_and(|flight| flight.source == source)
}
