//! What is in flight to one receiver: its packet identifiers and how far each exchange is.
//!
//! Owns: which packet identifiers are taken, and that no more messages are outstanding than the receiver allowed.
//! Never: which message comes next, that is the queue's; or what may come next in an exchange, that is the protocol's.
//!
//! Invariants:
//! 1. A packet identifier is given out only while it is free: positions are offsets, identifiers are only labels.
//! 2. `outstanding` never exceeds `receive_maximum` by messages sent on this connection [MQTT-3.3.4-9].

use crate::flow::exchange::{Follows, Next, State};
use crate::flow::state::{Flight, Phase};
use crate::flow::Step;
use crate::ids::Timestamp;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::BuildHasher;

/// The packet identifiers of one receiver.
#[derive(Debug)]
pub struct Window {
    receive_maximum: usize,
    last: u16,
    outstanding: usize,
    flights: HashMap<u16, Exchange, Spread>,
}

#[derive(Debug, Clone, Copy)]
struct Exchange {
    flight: Flight,
    on_this_connection: bool,
    is_old: bool,
    is_given_up: bool,
    attempts: u16,
    since: Timestamp,
}

impl Exchange {
    fn new(flight: Flight, on_this_connection: bool) -> Exchange {
        let since = Timestamp(0);
        Exchange { flight, on_this_connection, is_old: !on_this_connection, is_given_up: false, attempts: 0, since }
    }

    /// It counts as one of this connection; returns how many more of those there are.
    fn bring_over(&mut self) -> usize {
        usize::from(!std::mem::replace(&mut self.on_this_connection, true))
    }

    /// It is sent once more.
    fn note_sent(&mut self, now: Timestamp) {
        self.attempts = self.attempts.saturating_add(1);
        self.since = now;
    }

    fn state(&self) -> State {
        match (self.flight.phase, self.flight.qos) {
            (Phase::Received, _) => State::Uncompleted,
            (Phase::Sent, 2) => State::Unreceived,
            (Phase::Sent, _) => State::Unacknowledged,
        }
    }
}

/// What a step of the receiver has changed.
#[derive(Debug, Clone, Copy)]
pub struct Stepped {
    /// What follows.
    pub follows: Follows,
    /// The exchange as it was before, if there was one.
    pub flight: Option<Flight>,
    /// The message had been given up.
    pub was_given_up: bool,
}

impl Window {
    /// A window that resumes `flights` of an earlier connection: their identifiers stay taken.
    pub fn resume(receive_maximum: u16, last: u16, flights: impl Iterator<Item = (u16, Flight)>) -> Window {
        let flights: HashMap<_, _, _> =
            flights.map(|(identifier, flight)| (identifier, Exchange::new(flight, false))).collect();
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
    pub fn send(&mut self, flight: Flight, now: Timestamp) -> Option<u16> {
        if !self.has_room() {
            return None;
        }
        self.outstanding += 1;
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(free) = self.flights.entry(self.last) {
                free.insert(Exchange::new(flight, true)).note_sent(now);
                return Some(self.last);
            }
        }
    }

    /// A message of an earlier connection is sent again under its identifier.
    pub fn send_again(&mut self, identifier: u16, now: Timestamp) {
        if let Some(exchange) = self.flights.get_mut(&identifier) {
            self.outstanding += exchange.bring_over();
            exchange.note_sent(now);
        }
    }

    /// A message of this connection is to be sent again, as if it were of an earlier one.
    pub fn send_later(&mut self, identifier: u16) {
        if let Some(exchange) = self.flights.get_mut(&identifier).filter(|exchange| exchange.on_this_connection) {
            exchange.on_this_connection = false;
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// Nothing more is done for the message; only its identifier is still taken.
    pub fn give_up(&mut self, identifier: u16) {
        if let Some(exchange) = self.flights.get_mut(&identifier) {
            self.outstanding += exchange.bring_over();
            exchange.is_given_up = true;
        }
    }

    /// The exchange of `identifier`, if the receiver may have its message since an earlier connection and not have said
    /// so: until it is released, another message under this identifier would be the same one to it (MQTT 5 section
    /// 4.3.3).
    pub fn in_doubt(&mut self, identifier: u16) -> Option<&mut Flight> {
        let exchange = self.flights.get_mut(&identifier).filter(|exchange| exchange.is_old && !exchange.is_given_up);
        exchange.map(|exchange| &mut exchange.flight).filter(|flight| flight.qos == 2 && flight.phase == Phase::Sent)
    }

    /// True if its message was sent on this connection, whether or not it is to be sent again.
    pub fn is_sent(&self, identifier: u16) -> bool {
        self.flights.get(&identifier).is_some_and(|exchange| exchange.attempts > 0)
    }

    /// The exchange of `identifier`, if there is one.
    pub fn flight(&self, identifier: u16) -> Option<Flight> {
        self.flights.get(&identifier).map(|exchange| exchange.flight)
    }

    /// That exchange, if its message is still to be acknowledged or received: then it may be sent again.
    pub fn awaited(&self, identifier: u16) -> Option<Flight> {
        let exchange = self.flights.get(&identifier).filter(|exchange| !exchange.is_given_up)?;
        Some(exchange.flight).filter(|flight| flight.phase == Phase::Sent)
    }

    /// The receiver takes a step in the exchange of `identifier`, which goes on as `next` says.
    #[inline]
    pub fn step(&mut self, identifier: u16, step: Step, is_refused: bool, next: Next) -> Stepped {
        let Entry::Occupied(mut known) = self.flights.entry(identifier) else {
            let (_, follows) = next(State::Free, step, is_refused);
            return Stepped { follows, flight: None, was_given_up: false };
        };
        let exchange = known.get_mut();
        let (before, was_given_up) = (exchange.flight, exchange.is_given_up);
        let (state, follows) = next(exchange.state(), step, is_refused);
        match state {
            State::Free => {
                if known.remove().on_this_connection {
                    self.outstanding = self.outstanding.saturating_sub(1);
                }
            }
            State::Uncompleted => {
                exchange.flight.phase = Phase::Received;
                // It was sent once on this connection, whether or not it is to be sent again.
                self.outstanding += exchange.bring_over();
            }
            State::Unacknowledged | State::Unreceived => {}
        }
        Stepped { follows, flight: Some(before), was_given_up }
    }

    /// The exchange ends from this side, and its identifier is free. True beside it if the message had been given up.
    pub fn complete(&mut self, identifier: u16) -> Option<(Flight, bool)> {
        let exchange = self.flights.remove(&identifier)?;
        self.outstanding = self.outstanding.saturating_sub(usize::from(exchange.on_this_connection));
        Some((exchange.flight, exchange.is_given_up))
    }

    /// Everything in flight, by packet identifier, in no order: what was given up only if it was received and its
    /// identifier still has to be released.
    pub fn flights(&self) -> impl Iterator<Item = (u16, Flight)> + '_ {
        self.sent().map(|(identifier, flight, _, _)| (identifier, flight))
    }

    /// The same with how often each was sent on this connection, and when last.
    pub fn sent(&self) -> impl Iterator<Item = (u16, Flight, u16, Timestamp)> + '_ {
        let goes_on = |exchange: &Exchange| !exchange.is_given_up || exchange.flight.phase == Phase::Received;
        let sent = self.flights.iter().filter(move |(_, exchange)| goes_on(exchange));
        sent.map(|(identifier, known)| (*identifier, known.flight, known.attempts, known.since))
    }

    /// Everything in flight that was not given up, by packet identifier, in no order.
    pub fn pending(&self) -> impl Iterator<Item = (u16, Flight)> + '_ {
        let pending = self.flights.iter().filter(|(_, exchange)| !exchange.is_given_up);
        pending.map(|(identifier, exchange)| (*identifier, exchange.flight))
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
