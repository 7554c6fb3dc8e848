//! What each connection may publish and what it may be sent, by the tables that it was given.
//!
//! Owns: the tables of connections, and a memory of what a table said of a topic. Never: a reason for a rule; a
//! connection without a table may do everything.
//!
//! Invariant: what the memory answers is what the table would say. A place in it belongs to one table and topic at a
//! time and is simply taken over, so it is bounded and never has to be emptied.

use crate::error::Result;
use crate::flow::{Arrivals, Fate, Publish};
use crate::ids::Connection;
use crate::limits::{GRANT_MEMORY_TOPICS_MAXIMUM, ROUTE_CACHE_TOPIC_BYTES_MAXIMUM};
use crate::slots::Slots;
use crate::topic::table::{Table, Tables};
use ahash::RandomState;
use std::collections::BTreeMap;
use std::mem;

/// Rules as they are given: topic filter, and whether it allows. `None` allows everything.
pub type Rules<'a, Filter> = Option<&'a [(Filter, bool)]>;

/// What one connection was granted.
#[derive(Debug, Default)]
struct Granted {
    publish: Option<Table>,
    receive: Option<Table>,
}

/// What was denied since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that their publisher may not publish.
    pub publishes_denied: u64,
    /// Topics that were kept from a queue that had subscribed to them; each counts when it is looked up.
    pub topics_withheld: u64,
}

/// The tables of all connections.
#[derive(Debug)]
pub struct Grants {
    tables: Tables,
    connections: Slots<Connection, Granted>,
    /// How many connections have a table for each direction: where none has, nothing is looked at.
    publish_tables: usize,
    receive_tables: usize,
    memory: Memory,
    denied: BTreeMap<Connection, u64>,
    counters: Counters,
}

impl Grants {
    /// No tables.
    pub fn new(hashing: RandomState) -> Grants {
        Grants {
            tables: Tables::default(),
            connections: Slots::default(),
            publish_tables: 0,
            receive_tables: 0,
            memory: Memory { places: Vec::new(), hashing },
            denied: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Replaces the tables of a connection; true if it is now sent something else than before.
    pub fn grant<Filter: AsRef<[u8]>>(
        &mut self,
        connection: Connection,
        publish: Rules<'_, Filter>,
        receive: Rules<'_, Filter>,
    ) -> Result<bool> {
        let publish = publish.map(|rules| self.tables.table(rules)).transpose()?;
        let receive = receive.map(|rules| self.tables.table(rules)).transpose()?;
        let held = |table: &Option<Table>| usize::from(table.is_some());
        let (publishes, receives) = (held(&publish), held(&receive));
        let before = match publishes + receives {
            0 => self.connections.take(connection),
            _ => self.connections.put(connection, Granted { publish, receive: receive.clone() }),
        };
        let before = before.unwrap_or_default();
        self.publish_tables = self.publish_tables + publishes - held(&before.publish);
        self.receive_tables = self.receive_tables + receives - held(&before.receive);
        Ok(before.receive != receive)
    }

    /// Refuses what its publisher may not publish.
    pub fn refuse(&mut self, arrivals: &mut Arrivals) {
        if self.publish_tables == 0 {
            return;
        }
        let mut publishes = mem::take(&mut arrivals.publishes);
        for publish in publishes.iter_mut().filter(|publish| publish.fate == Fate::Accepted) {
            let granted = self.connections.get(publish.connection);
            let Some(table) = granted.and_then(|granted| granted.publish.as_ref()) else { continue };
            if !self.memory.allows(table, arrivals.span(publish.topic)) {
                self.deny(publish);
            }
        }
        arrivals.publishes = publishes;
    }

    /// Refuses one message.
    pub fn deny(&mut self, publish: &mut Publish) {
        publish.fate = Fate::Denied;
        self.counters.publishes_denied += 1;
        *self.denied.entry(publish.connection).or_default() += 1;
    }

    /// True if the connection may be sent messages of this topic.
    pub fn receives(&mut self, connection: Connection, topic: &[u8]) -> bool {
        if self.receive_tables == 0 {
            return true;
        }
        let granted = self.connections.get(connection);
        let Some(table) = granted.and_then(|granted| granted.receive.as_ref()) else { return true };
        let allows = self.memory.allows(table, topic);
        self.counters.topics_withheld += u64::from(!allows);
        allows
    }

    /// How many messages of each connection were denied since the last call.
    pub fn take_denied(&mut self) -> BTreeMap<Connection, u64> {
        mem::take(&mut self.denied)
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// What a table said of a topic.
#[derive(Debug)]
struct Said {
    table: u64,
    topic: Box<[u8]>,
    allows: bool,
}

/// Answers by table and topic.
#[derive(Debug)]
struct Memory {
    /// Empty until the first question.
    places: Vec<Option<Said>>,
    hashing: RandomState,
}

impl Memory {
    fn allows(&mut self, table: &Table, topic: &[u8]) -> bool {
        if topic.len() > ROUTE_CACHE_TOPIC_BYTES_MAXIMUM {
            return table.allows(topic);
        }
        if self.places.is_empty() {
            self.places.resize_with(GRANT_MEMORY_TOPICS_MAXIMUM, || None);
        }
        let hash = usize::try_from(self.hashing.hash_one((table.number(), topic))).unwrap_or_default();
        let Some(place) = self.places.get_mut(hash % GRANT_MEMORY_TOPICS_MAXIMUM) else { return table.allows(topic) };
        match place {
            Some(said) if said.table == table.number() && *said.topic == *topic => said.allows,
            _ => {
                let allows = table.allows(topic);
                *place = Some(Said { table: table.number(), topic: topic.into(), allows });
                allows
            }
        }
    }
}
