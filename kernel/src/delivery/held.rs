//! What waits until the log is durable far enough.
//!
//! Owns: the order in which it waits, and how far the log is durable. Never: decides what waits.
//!
//! Invariants:
//! 1. What was held first leaves first.
//! 2. What depends on the progress of this turn has no position, and does not leave, until that is in the log.

use super::queue::entry_of;
use crate::flow::{Departure, Found, Target};
use crate::ids::{LogPosition, Offset, Party};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stored message on its way to queues.
#[derive(Debug)]
pub(super) struct Arrived {
    pub durable_at: LogPosition,
    pub found: Found,
    /// What one message of it takes where it is given out by itself, about: in the log its topic is not with it, nor is
    /// an entry opened.
    pub each_bytes: u32,
    pub publisher: Party,
    pub targets: Arc<[Target]>,
}

/// Something that leaves for one connection; dropped if that is another one by then, as its serial number tells.
#[derive(Debug)]
struct Withheld {
    position: LogPosition,
    serial: u32,
    departure: Departure,
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Held {
    arrived: VecDeque<Arrived>,
    arrived_total: u64,
    settled_total: u64,
    waiting: VecDeque<Withheld>,
    /// What waits for progress that is not in the log yet.
    unpositioned: Vec<(u32, Departure)>,
    durable: Offset,
}

impl Held {
    /// Everything below is durable.
    pub fn durable(&self) -> Offset {
        self.durable
    }

    /// Everything below is durable now.
    pub fn advance(&mut self, durable: Offset) {
        self.durable = self.durable.max(durable);
    }

    /// How many messages have ever waited.
    pub fn arrived_total(&self) -> u64 {
        self.arrived_total
    }

    /// How many of those wait no more.
    pub fn settled_total(&self) -> u64 {
        self.settled_total
    }

    /// Everything below is durable or waits here.
    pub fn end(&self) -> Offset {
        self.arrived.back().map_or(self.durable, |arrived| entry_of(&arrived.found).end())
    }

    /// True if anything waits.
    pub fn is_any(&self) -> bool {
        !self.waiting.is_empty() || !self.arrived.is_empty()
    }

    /// A message waits.
    pub fn arrive(&mut self, arrived: Arrived) {
        self.arrived_total = self.arrived_total.wrapping_add(1);
        self.arrived.push_back(arrived);
    }

    /// The next message that waits no more.
    pub fn next_arrived(&mut self, position: LogPosition) -> Option<Arrived> {
        self.arrived.front().filter(|arrived| arrived.durable_at <= position)?;
        self.settled_total = self.settled_total.wrapping_add(1);
        self.arrived.pop_front()
    }

    /// It leaves once the log is durable up to `position`.
    pub fn until(&mut self, position: LogPosition, serial: u32, departure: Departure) {
        let position = self.waiting.back().map_or(position, |last| last.position.max(position));
        self.waiting.push_back(Withheld { position, serial, departure });
    }

    /// It leaves once what this turn changes is durable.
    pub fn until_progress(&mut self, serial: u32, departure: Departure) {
        self.unpositioned.push((serial, departure));
    }

    /// The progress of this turn is durable once the log is durable up to `position`.
    pub fn progressed(&mut self, position: LogPosition) {
        for (serial, departure) in std::mem::take(&mut self.unpositioned) {
            self.until(position, serial, departure);
        }
    }

    /// True if something waits for progress that is not yet in the log.
    pub fn needs_progress(&self) -> bool {
        !self.unpositioned.is_empty()
    }

    /// The next that leaves, with the serial number of its connection.
    pub fn next_departure(&mut self, position: LogPosition) -> Option<(u32, Departure)> {
        self.waiting.front().filter(|waiting| waiting.position <= position)?;
        self.waiting.pop_front().map(|waiting| (waiting.serial, waiting.departure))
    }

    /// All that waits for a connection.
    pub fn departures(&self, serial: u32) -> impl Iterator<Item = &Departure> {
        let positioned = self.waiting.iter().map(|waiting| (waiting.serial, &waiting.departure));
        let others = self.unpositioned.iter().map(|(serial, departure)| (*serial, departure));
        positioned.chain(others).filter(move |(of, _)| *of == serial).map(|(_, departure)| departure)
    }
}
