//! One receiver: who takes from a queue of its own and from those of groups, and what is in flight to it.
//!
//! Owns: its window, its packs, its part in each group, and what has to be remembered of it. Never: decides which
//! message comes next.

use super::members::Membership;
use super::pack::Pack;
use super::window::{Stepped, Window};
use crate::flow::exchange::{Follows, Next, State};
use crate::flow::state::{Changes, Flight, Phase, Source};
use crate::flow::{Found, Sending, Step};
use crate::ids::{self, Connection, Party, Timestamp};
use crate::limits;

/// One attached receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Where it is.
    pub connection: Connection,
    /// Tells its connection from those that had the same handle before; given when it is attached.
    pub serial: u32,
    /// Whose it is.
    pub party: Party,
    /// Its own queue.
    pub queue: ids::Queue,
    /// What may still be given to it, and what is in flight.
    pub window: Window,
    /// What its own queue may give before it waits; none if that may always go on.
    pub pack: Option<Pack>,
    /// Its connection takes bytes.
    pub is_writable: bool,
    /// How much it has been sent in this turn.
    pub allotted_bytes: usize,
    /// Messages that it has acknowledged.
    pub acknowledged: u64,
    /// What has to be remembered of this turn.
    pub changes: Changes,
    /// It is on the list of those with something to remember.
    pub is_changed: bool,
    /// Its part in groups.
    pub memberships: Vec<Membership>,
    /// It has subscriptions of its own.
    pub has_own: bool,
    /// How much of the window one group may take.
    pub part: usize,
    /// The number of the last moment for which it was copied, or that was before it came.
    pub copied_for: u32,
}

impl Receiver {
    /// It takes a step in the exchange of a packet identifier.
    #[inline]
    pub fn step(&mut self, packet_identifier: u16, step: Step, is_refused: bool, next: Next) -> Stepped {
        if step == Step::Released {
            // It is about a message of its own, of which nothing is in flight to it.
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
    pub fn end(&mut self, packet_identifier: u16) -> Option<(Flight, bool)> {
        let (flight, was_given_up) = self.window.complete(packet_identifier)?;
        self.note_end(&flight, was_given_up);
        Some((flight, was_given_up))
    }

    /// Its message cannot be sent again. If it went out on this connection it may still be answered: its packet
    /// identifier, and its place in Receive Maximum, stay taken until then. True if the receiver may have it since an
    /// earlier one, and is to be told that its identifier is released.
    pub fn lose(&mut self, packet_identifier: u16, flight: &Flight) -> bool {
        if let Some(flight) = self.window.in_doubt(packet_identifier) {
            flight.phase = Phase::Received;
            return true;
        }
        if !self.window.is_sent(packet_identifier) {
            self.end(packet_identifier);
        } else if let Some(pack) = self.pack_of(flight.source) {
            pack.finish();
        }
        self.window.give_up(packet_identifier);
        false
    }

    #[inline]
    fn note_end(&mut self, flight: &Flight, was_given_up: bool) {
        let pack = match flight.source {
            Source::Queue => self.pack.as_mut(),
            Source::Retained => None,
            Source::Group(party) => self.membership_in(party).and_then(|membership| {
                membership.in_flight = membership.in_flight.saturating_sub(1);
                membership.pack.as_mut()
            }),
        };
        if let Some(pack) = pack.filter(|_| !was_given_up) {
            pack.finish();
        }
    }

    /// True if its own queue may give it something new.
    pub fn takes_new(&self) -> bool {
        self.pack.as_ref().is_none_or(Pack::is_open)
    }

    /// Whose the message is as long as nobody has acknowledged it.
    pub fn loser(&self, flight: &Flight) -> Party {
        match flight.source {
            Source::Group(party) => party,
            _ => self.party,
        }
    }

    /// The pack in which messages from there are.
    pub fn pack_of(&mut self, source: Source) -> Option<&mut Pack> {
        match source {
            Source::Queue => self.pack.as_mut(),
            Source::Retained => None,
            Source::Group(party) => self.membership_in(party)?.pack.as_mut(),
        }
    }

    /// What is in flight from there and not given up, in the order in which it was sent.
    pub fn pending_of(&self, source: Source) -> Vec<(u16, Flight)> {
        let mut pending: Vec<(u16, Flight)> =
            self.window.pending().filter(|(_, flight)| flight.source == source).collect();
        let last = self.window.last();
        pending.sort_unstable_by_key(|(identifier, _)| identifier.wrapping_sub(last).wrapping_sub(1));
        pending
    }

    /// Its part in the group of this party.
    pub fn membership_in(&mut self, party: Party) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|membership| membership.party == party)
    }

    /// Its part in the group that has this queue.
    pub fn membership_of(&mut self, group: ids::Queue) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|membership| membership.group == group)
    }

    /// Divides the window evenly among the groups and its own queue, if that gets anything.
    pub fn divide(&mut self) {
        let groups = self.memberships.iter().filter(|membership| membership.takes).count();
        let parts = groups.saturating_add(usize::from(self.has_own));
        self.part = self.window.receive_maximum().checked_div(parts).unwrap_or_default().max(1);
    }

    /// Its part in a group, if it would take another message of it.
    pub fn takes_of(&self, group: ids::Queue) -> Option<&Membership> {
        let membership = self.memberships.iter().find(|membership| membership.group == group)?;
        let takes_new = membership.pack.as_ref().is_none_or(Pack::is_open);
        let has_part = takes_new && membership.in_flight < self.part && self.window.has_room();
        let has_room = membership.terms.qos == 0 || has_part;
        (membership.takes && self.is_writable && has_room).then_some(membership)
    }

    /// True if it has been sent as much as one turn may.
    pub fn is_sated(&self) -> bool {
        self.allotted_bytes > limits::ALLOT_BYTES_MAXIMUM
    }

    /// A packet identifier for a delivery: its old one, a new one, or 0 at QoS 0. `None` without room in the window.
    pub fn identifier(&mut self, again: Option<u16>, flight: Flight, now: Timestamp) -> Option<u16> {
        if let Some(identifier) = again {
            if !self.window.has_quota() {
                return None;
            }
            self.window.send_again(identifier, now);
            return Some(identifier);
        }
        if flight.qos == 0 {
            return Some(0);
        }
        self.window.send(flight, now)
    }

    /// Puts a group's message into the window; `None` without room.
    pub fn take_shared(
        &mut self,
        handle: ids::Receiver,
        group: ids::Queue,
        found: &Found,
        again: bool,
        now: Timestamp,
    ) -> Option<(Sending, Source)> {
        let membership = self.memberships.iter_mut().find(|membership| membership.group == group)?;
        let (qos, source) = (found.qos.min(membership.terms.qos), Source::Group(membership.party));
        let mut packet_identifier = 0;
        if qos > 0 {
            let flight = Flight { offset: found.offset, qos, phase: Phase::Sent, source };
            packet_identifier = self.window.send(flight, now)?;
            membership.in_flight = membership.in_flight.saturating_add(1);
            if let Some(pack) = &mut membership.pack {
                pack.give(found.offset, now);
            }
        }
        membership.given = membership.given.wrapping_add(1);
        let retain = found.retain && membership.terms.retain_as_published;
        let identifiers = membership.terms.identifiers.clone();
        // To this client it is a first attempt, whoever had it before [MQTT-3.3.1-1].
        let first = self.send(handle, found, packet_identifier, qos);
        Some((Sending { again, retain, identifiers, ..first }, source))
    }

    /// Counts a message as sent, and makes of it a first attempt at what is not retained.
    #[inline]
    pub fn send(&mut self, handle: ids::Receiver, found: &Found, packet_identifier: u16, qos: u8) -> Sending {
        let size = usize::try_from(found.size_bytes).unwrap_or(usize::MAX);
        self.allotted_bytes = self.allotted_bytes.saturating_add(size);
        Sending {
            connection: self.connection,
            receiver: handle,
            redeliveries: 0,
            packet_identifier,
            qos,
            dup: false,
            again: false,
            retain: false,
            identifiers: None,
            offset: found.offset,
            location: found.location,
        }
    }
}
