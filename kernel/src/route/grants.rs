//! What each connection may publish and what it may be sent, by the grants that it was given.
//!
//! Owns: the grants of connections, and a memory of what a grant said of a topic. Never: a reason for a rule; a
//! connection without a grant may do everything.
//!
//! Invariant: what the memory answers is what the grant would say. A place in it belongs to one grant and topic at a
//! time and is simply taken over, so it is bounded and never has to be emptied.

use crate::error::Result;
use crate::flow::{Arrivals, Fate, Publish};
use crate::ids::Connection;
use crate::limits::{GRANT_MEMORY_TOPICS_MAXIMUM, ROUTE_CACHE_TOPIC_BYTES_MAXIMUM};
use crate::slots::Slots;
use crate::topic::grant::{Grant, HeldGrants};
use ahash::RandomState;
use std::collections::BTreeMap;
use std::mem;

/// Rules as they are given: topic filter, and whether it allows. `None` allows everything.
pub type Rules<'a, Filter> = Option<&'a [(Filter, bool)]>;

/// What one connection was granted.
#[derive(Debug, Default)]
struct Granted {
    publish: Option<Grant>,
    receive: Option<Grant>,
}

/// What was denied since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that their publisher may not publish.
    pub publishes_denied: u64,
    /// Topics that were kept from a queue that had subscribed to them; each counts when it is looked up.
    pub topics_withheld: u64,
}

/// The grants of all connections.
#[derive(Debug)]
pub struct Grants {
    held: HeldGrants,
    connections: Slots<Connection, Granted>,
    /// How many connections have a grant for each direction: where none has, nothing is looked at.
    publish_grants: usize,
    receive_grants: usize,
    memory: Memory,
    denied: BTreeMap<Connection, u64>,
    counters: Counters,
}

impl Grants {
    /// No grants.
    pub fn new(hashing: RandomState) -> Grants {
        Grants {
            held: HeldGrants::default(),
            connections: Slots::default(),
            publish_grants: 0,
            receive_grants: 0,
            memory: Memory { places: Vec::new(), hashing },
            denied: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Replaces the grants of a connection; true if it is now sent something else than before.
    pub fn grant<Filter: AsRef<[u8]>>(
        &mut self,
        connection: Connection,
        publish: Rules<'_, Filter>,
        receive: Rules<'_, Filter>,
    ) -> Result<bool> {
        let publish = publish.map(|rules| self.held.grant(rules)).transpose()?;
        let receive = receive.map(|rules| self.held.grant(rules)).transpose()?;
        let count = |grant: &Option<Grant>| usize::from(grant.is_some());
        let (publishes, receives) = (count(&publish), count(&receive));
        let before = match publishes + receives {
            0 => self.connections.take(connection),
            _ => self.connections.put(connection, Granted { publish, receive: receive.clone() }),
        };
        let before = before.unwrap_or_default();
        self.publish_grants = self.publish_grants + publishes - count(&before.publish);
        self.receive_grants = self.receive_grants + receives - count(&before.receive);
        Ok(before.receive != receive)
    }

    /// Refuses what its publisher may not publish.
    pub fn refuse(&mut self, arrivals: &mut Arrivals) {
        if self.publish_grants == 0 {
            return;
        }
        let mut publishes = mem::take(&mut arrivals.publishes);
        for publish in publishes.iter_mut().filter(|publish| publish.fate == Fate::Accepted) {
            let granted = self.connections.get(publish.connection);
            let Some(grant) = granted.and_then(|granted| granted.publish.as_ref()) else { continue };
            if !self.memory.allows(grant, arrivals.span(publish.topic)) {
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
        if self.receive_grants == 0 {
            return true;
        }
        let granted = self.connections.get(connection);
        let Some(grant) = granted.and_then(|granted| granted.receive.as_ref()) else { return true };
        let allows = self.memory.allows(grant, topic);
        self.counters.topics_withheld += u64::from(!allows);
        allows
    }

    /// True if any were.
    pub fn has_denied(&self) -> bool {
        !self.denied.is_empty()
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

/// What a grant said of a topic.
#[derive(Debug)]
struct Said {
    grant: u64,
    topic: Box<[u8]>,
    allows: bool,
}

/// Answers by grant and topic.
#[derive(Debug)]
struct Memory {
    /// Empty until the first question.
    places: Vec<Option<Said>>,
    hashing: RandomState,
}

impl Memory {
    fn allows(&mut self, grant: &Grant, topic: &[u8]) -> bool {
        if topic.len() > ROUTE_CACHE_TOPIC_BYTES_MAXIMUM {
            return grant.allows(topic);
        }
        if self.places.is_empty() {
            self.places.resize_with(GRANT_MEMORY_TOPICS_MAXIMUM, || None);
        }
        let hash = usize::try_from(self.hashing.hash_one((grant.number(), topic))).unwrap_or_default();
        let Some(place) = self.places.get_mut(hash % GRANT_MEMORY_TOPICS_MAXIMUM) else { return grant.allows(topic) };
        match place {
            Some(said) if said.grant == grant.number() && *said.topic == *topic => said.allows,
            _ => {
                let allows = grant.allows(topic);
                *place = Some(Said { grant: grant.number(), topic: topic.into(), allows });
                allows
            }
        }
    }
}
