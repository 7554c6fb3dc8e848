//! What the caller asks for after a turn.
//!
//! Owns: it until it is asked for, and the totals. Never: acts on it.

use crate::flow::Refusal;
use crate::ids::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// Totals since the start.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Messages of QoS 1 and 2 given to a window or by permits, repeated ones included.
    pub deliveries: u64,
    /// Of those, sent again after a reconnect, or because their receiver wanted that.
    pub redeliveries: u64,
    /// Deliveries that were acknowledged to the end.
    pub completed: u64,
    /// Messages of QoS 1 and 2, and entries, that publishers were told the end of.
    pub answered: u64,
    /// Messages of any QoS, and entries, that were not taken.
    pub refused: u64,
}

/// What has come up since it was last asked for.
#[derive(Debug, Default)]
pub(super) struct Reports {
    answered: BTreeMap<Connection, u32>,
    refused: BTreeMap<(Connection, Refusal), u32>,
    at_fault: BTreeSet<Connection>,
    counters: Counters,
}

impl Reports {
    /// A message was given to a receiver, again or for the first time.
    pub fn deliver(&mut self, again: bool) {
        self.counters.deliveries = self.counters.deliveries.wrapping_add(1);
        self.counters.redeliveries = self.counters.redeliveries.wrapping_add(u64::from(again));
    }

    /// An entry with so many messages was given to a receiver, again or for the first time.
    pub fn give(&mut self, messages: u32, again: bool) {
        let messages = u64::from(messages);
        self.counters.deliveries = self.counters.deliveries.wrapping_add(messages);
        self.counters.redeliveries = self.counters.redeliveries.wrapping_add(if again { messages } else { 0 });
    }

    /// A receiver is done with so many messages of an entry.
    pub fn settle(&mut self, messages: u64) {
        self.counters.completed = self.counters.completed.wrapping_add(messages);
    }

    /// The exchange about a message is over.
    pub fn complete(&mut self) {
        self.counters.completed = self.counters.completed.wrapping_add(1);
    }

    /// A message of the connection has been answered to the end.
    pub fn answer(&mut self, connection: Connection) {
        self.counters.answered = self.counters.answered.wrapping_add(1);
        *self.answered.entry(connection).or_default() += 1;
    }

    /// The publisher of an entry was told what became of it.
    pub fn receipt(&mut self) {
        self.counters.answered = self.counters.answered.wrapping_add(1);
    }

    /// A message or an entry of the connection was not taken.
    pub fn refuse(&mut self, connection: Connection, refusal: Refusal) {
        self.counters.refused = self.counters.refused.wrapping_add(1);
        *self.refused.entry((connection, refusal)).or_default() += 1;
    }

    /// The connection's peer has broken the rules of an exchange.
    pub fn blame(&mut self, connection: Connection) {
        self.at_fault.insert(connection);
    }

    /// The connection is gone, and nothing need be told of it.
    pub fn forget(&mut self, connection: Connection) {
        self.answered.remove(&connection);
        self.refused.retain(|(refused, _), _| *refused != connection);
        self.at_fault.remove(&connection);
    }

    /// True if something has to be told of a connection.
    pub fn is_any(&self) -> bool {
        !(self.refused.is_empty() && self.at_fault.is_empty())
    }

    pub fn take_answered(&mut self) -> BTreeMap<Connection, u32> {
        std::mem::take(&mut self.answered)
    }

    pub fn take_refused(&mut self) -> BTreeMap<(Connection, Refusal), u32> {
        std::mem::take(&mut self.refused)
    }

    pub fn take_at_fault(&mut self) -> BTreeSet<Connection> {
        std::mem::take(&mut self.at_fault)
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }
}
