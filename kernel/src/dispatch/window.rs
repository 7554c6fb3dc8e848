//! What is in flight to one MQTT session: its packet identifiers and how far each exchange is.
//!
//! Owns: which packet identifiers are taken, and that no more messages are outstanding than the receiver allowed.
//! Never: which message comes next; that is the queue's.
//!
//! Invariants:
//! 1. A packet identifier is given out only while it is free: positions are offsets, identifiers are only labels.
//! 2. `outstanding` never exceeds `receive_maximum` by messages sent on this connection [MQTT-3.3.4-9].

use crate::flow::state::{Flight, Phase};
use crate::flow::AcknowledgementKind;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// The packet identifiers of one session.
#[derive(Debug)]
pub struct Window {
    receive_maximum: usize,
    last: u16,
    outstanding: usize,
    flights: HashMap<u16, Slot, Spread>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    flight: Flight,
    on_this_connection: bool,
    is_given_up: bool,
}

impl Slot {
    fn new(flight: Flight, on_this_connection: bool) -> Slot {
        Slot { flight, on_this_connection, is_given_up: false }
    }
}

impl Window {
    /// A window that resumes `flights` of an earlier connection: their identifiers stay taken.
    pub fn resume(receive_maximum: u16, last: u16, flights: impl Iterator<Item = (u16, Flight)>) -> Window {
        let flights: HashMap<_, _, _> =
            flights.map(|(identifier, flight)| (identifier, Slot::new(flight, false))).collect();
        Window { receive_maximum: usize::from(receive_maximum.max(1)), last, outstanding: 0, flights }
    }

    /// What the receiver allowed.
    pub fn receive_maximum(&self) -> usize {
        self.receive_maximum
    }

    /// True if another message may be on its way. One that has its packet identifier already needs no more than that.
    pub fn has_quota(&self) -> bool {
        self.outstanding < self.receive_maximum
    }

    /// True if a message that has no packet identifier yet may be sent.
    pub fn has_room(&self) -> bool {
        self.has_quota() && self.flights.len() < usize::from(u16::MAX)
    }

    /// Takes the next free packet identifier after the last one, 1 following 65 535; `None` without room.
    pub fn send(&mut self, flight: Flight) -> Option<u16> {
        if !self.has_room() {
            return None;
        }
        let mut identifier = self.last;
        loop {
            identifier = identifier.checked_add(1).unwrap_or(1);
            if !self.flights.contains_key(&identifier) {
                break;
            }
        }
        self.last = identifier;
        self.flights.insert(identifier, Slot::new(flight, true));
        self.outstanding += 1;
        Some(identifier)
    }

    /// A message of an earlier connection is sent again under its identifier.
    pub fn send_again(&mut self, identifier: u16) {
        if let Some(slot) = self.flights.get_mut(&identifier) {
            if !slot.on_this_connection {
                slot.on_this_connection = true;
                self.outstanding += 1;
            }
        }
    }

    /// A message of this connection is to be sent again, as if it were of an earlier one.
    pub fn send_later(&mut self, identifier: u16) {
        if let Some(slot) = self.flights.get_mut(&identifier).filter(|slot| slot.on_this_connection) {
            slot.on_this_connection = false;
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// Nothing more is done for the message; only its identifier is still taken.
    pub fn give_up(&mut self, identifier: u16) {
        self.send_again(identifier);
        if let Some(slot) = self.flights.get_mut(&identifier) {
            slot.is_given_up = true;
        }
    }

    /// The exchange of `identifier`, if there is one.
    pub fn flight(&self, identifier: u16) -> Option<Flight> {
        self.flights.get(&identifier).map(|slot| slot.flight)
    }

    /// That exchange, if PUBLISH is still to be answered: then it may be sent again.
    pub fn awaited(&self, identifier: u16) -> Option<Flight> {
        let slot = self.flights.get(&identifier).filter(|slot| !slot.is_given_up)?;
        Some(slot.flight).filter(|flight| flight.phase == Phase::Published)
    }

    /// True if `kind` cannot be the next answer in the exchange of `identifier`. Where there is none, it may be that of
    /// one that has ended.
    pub fn contradicts(&self, identifier: u16, kind: AcknowledgementKind) -> bool {
        use AcknowledgementKind::{Puback, Pubcomp, Pubrel};
        self.flight(identifier).is_some_and(|flight| match (flight.qos, flight.phase) {
            (2, Phase::Published) => matches!(kind, Puback | Pubcomp),
            (2, Phase::Received) => kind == Puback,
            _ => !matches!(kind, Puback | Pubrel),
        })
    }

    /// PUBREC came: PUBREL is next.
    pub fn receive(&mut self, identifier: u16) {
        // It was sent once on this connection, whether or not it is to be sent again.
        self.send_again(identifier);
        if let Some(slot) = self.flights.get_mut(&identifier) {
            slot.flight.phase = Phase::Received;
        }
    }

    /// The exchange is over and the identifier free. True beside it if it had been given up.
    pub fn complete(&mut self, identifier: u16) -> Option<(Flight, bool)> {
        let slot = self.flights.remove(&identifier)?;
        if slot.on_this_connection {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        Some((slot.flight, slot.is_given_up))
    }

    /// Everything in flight, by packet identifier, in no order: what was given up only if its PUBREL has to follow.
    pub fn flights(&self) -> impl Iterator<Item = (u16, Flight)> + '_ {
        let goes_on = |slot: &Slot| !slot.is_given_up || slot.flight.phase == Phase::Received;
        let flights = self.flights.iter().filter(move |(_, slot)| goes_on(slot));
        flights.map(|(identifier, slot)| (*identifier, slot.flight))
    }

    /// What of that was not given up.
    pub fn pending(&self) -> impl Iterator<Item = (u16, Flight)> + '_ {
        let pending = self.flights.iter().filter(|(_, slot)| !slot.is_given_up);
        pending.map(|(identifier, slot)| (*identifier, slot.flight))
    }

    /// How many messages are in flight, those of earlier connections included.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// True if nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// The last packet identifier that was given out.
    pub fn last(&self) -> u16 {
        self.last
    }
}

/// Hashes a packet identifier by one multiplication: the broker gives identifiers out itself, so nobody can choose
/// colliding ones.
#[derive(Debug, Default, Clone, Copy)]
pub struct Spread;

/// The state of [`Spread`].
#[derive(Debug, Default, Clone, Copy)]
pub struct SpreadHasher(u64);

impl BuildHasher for Spread {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher(0)
    }
}

impl std::hash::Hasher for SpreadHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u16(u16::from(*byte));
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}
