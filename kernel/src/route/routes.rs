//! The subscriptions of attached queues, and the targets of each message.
//!
//! Owns: who subscribed to which filter, and how several subscriptions of one queue become one target. Never: knows
//! sessions, stored messages or queues at rest; those read the log.
//!
//! Invariants:
//! 1. A queue has at most one subscription per filter, and at most one target per message.
//! 2. Removing a queue costs its own subscriptions, whatever else there is.
//! 3. All subscriptions of a queue are on one connection at a time.

use super::grants::{Grants, Rules};
use super::memory::{Memory, Targets};
use super::trie::{Place, Trie, Walk};
use crate::error::{Error, Result};
use crate::flow::{Arrivals, Fate, Publish, Target, Terms};
use crate::ids::{Connection, Party, Queue};
use crate::{limits, topic};
use ahash::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A subscription of an attached queue, without its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription {
    /// The queue.
    pub queue: Queue,
    /// The connection that holds it.
    pub connection: Connection,
    /// Whose queue it is, for No Local.
    pub owner: Party,
    /// Maximum QoS.
    pub qos: u8,
    /// MQTT 5 No Local.
    pub no_local: bool,
    /// MQTT 5 Retain As Published.
    pub retain_as_published: bool,
    /// MQTT 5 Subscription Identifier.
    pub identifier: Option<u32>,
}

/// A subscription and when it was made: replacing it keeps the number.
#[derive(Debug, Clone, Copy)]
struct Subscriber {
    number: u64,
    subscription: Subscription,
}

/// All subscriptions of attached queues.
#[derive(Debug)]
pub struct Routes {
    trie: Trie,
    /// By place; empty where the trie has no filter.
    subscribers: Vec<Vec<Subscriber>>,
    /// Where a queue's subscription stands among the subscribers of a place.
    positions: HashMap<(Queue, Place), usize, RandomState>,
    /// The places of each queue, in no particular order.
    queues: HashMap<Queue, Vec<Place>, RandomState>,
    /// Which queues a connection holds, to find what a changed grant concerns.
    holders: BTreeSet<(Connection, Queue)>,
    /// Who may publish and be sent what.
    pub grants: Grants,
    memory: Memory,
    walk: Walk,
    matching: Vec<Subscriber>,
    subscriptions_ever: u64,
}

impl Routes {
    /// No subscriptions. `seed` varies the hashing, so that nobody can choose topics that collide.
    pub fn new(seed: u64) -> Routes {
        let hashing = RandomState::with_seeds(seed, seed.rotate_left(16), seed.rotate_left(32), seed.rotate_left(48));
        Routes {
            trie: Trie::new(hashing.clone()),
            subscribers: Vec::new(),
            positions: HashMap::with_hasher(hashing.clone()),
            queues: HashMap::with_hasher(hashing.clone()),
            holders: BTreeSet::new(),
            grants: Grants::new(hashing.clone()),
            memory: Memory::new(hashing),
            walk: Walk::default(),
            matching: Vec::new(),
            subscriptions_ever: 0,
        }
    }

    /// Adds the queue's subscription to this filter, or replaces it.
    pub fn subscribe(&mut self, filter: &[u8], subscription: Subscription) -> Result<()> {
        check(filter, &subscription)?;
        let place = self.trie.insert(filter);
        let queue = subscription.queue;
        if self.subscribers.len() <= place.index() {
            self.subscribers.resize_with(place.index().saturating_add(1), Vec::new);
        }
        let Some(subscribers) = self.subscribers.get_mut(place.index()) else { return Ok(()) };
        let position = self.positions.get(&(queue, place));
        if let Some(subscriber) = position.and_then(|position| subscribers.get_mut(*position)) {
            self.holders.remove(&(subscriber.subscription.connection, queue));
            subscriber.subscription = subscription;
        } else {
            // Most filters have one subscriber, and a vector that grows by itself starts with room for four.
            if subscribers.is_empty() {
                subscribers.reserve_exact(1);
            }
            self.positions.insert((queue, place), subscribers.len());
            subscribers.push(Subscriber { number: self.subscriptions_ever, subscription });
            self.queues.entry(queue).or_default().push(place);
            self.subscriptions_ever += 1;
        }
        self.holders.insert((subscription.connection, queue));
        self.memory.change(filter);
        Ok(())
    }

    /// Replaces what a connection may publish and be sent. Topics that its subscriptions match are looked up again
    /// only if it may be sent something else than before.
    pub fn grant<Filter: AsRef<[u8]>>(
        &mut self,
        connection: Connection,
        publish: Rules<'_, Filter>,
        receive: Rules<'_, Filter>,
    ) -> Result<()> {
        if self.grants.grant(connection, publish, receive)? {
            let held = self.holders.range((connection, Queue(0))..=(connection, Queue(u32::MAX)));
            for place in held.filter_map(|(_, queue)| self.queues.get(queue)).flatten() {
                self.memory.change(&self.trie.filter(*place));
            }
        }
        Ok(())
    }

    /// Takes back the queue's subscription to this filter; false if it has none.
    pub fn unsubscribe(&mut self, queue: Queue, filter: &[u8]) -> bool {
        let Some(place) = self.trie.find(filter).filter(|place| self.positions.contains_key(&(queue, *place))) else {
            return false;
        };
        self.take_out(queue, place);
        if let Some(places) = self.queues.get_mut(&queue) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.queues.remove(&queue);
            }
        }
        true
    }

    /// Takes back all subscriptions of the queue.
    pub fn remove(&mut self, queue: Queue) {
        for place in self.queues.remove(&queue).unwrap_or_default() {
            self.take_out(queue, place);
        }
    }

    /// The number of subscriptions.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// True if there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Denies what may not be published, and gives each accepted message its targets.
    pub fn route(&mut self, arrivals: &mut Arrivals) {
        self.grants.refuse(arrivals);
        let mut publishes = std::mem::take(&mut arrivals.publishes);
        // A publisher often sends to the same topic again: the second time is not even hashed.
        let mut last: Option<&Publish> = None;
        for publish in publishes.iter_mut().filter(|publish| publish.fate == Fate::Accepted) {
            let name = arrivals.span(publish.topic);
            // Clients do not exchange messages on the broker's own topics (MQTT 5 section 4.7.2).
            if topic::is_reserved(name) && publish.connection != Connection::NONE {
                self.grants.deny(publish);
                continue;
            }
            publish.targets = match last {
                Some(last) if arrivals.span(last.topic) == name => last.targets.clone(),
                _ => self.targets(name),
            };
            last = Some(publish);
        }
        arrivals.publishes = publishes;
    }

    /// The targets of a topic name.
    pub fn targets(&mut self, name: &[u8]) -> Targets {
        if let Some(targets) = self.memory.recall(name) {
            return targets.clone();
        }
        self.trie.walk(name, &mut self.walk);
        self.matching.clear();
        for place in &self.walk.found {
            self.matching.extend(self.subscribers.get(place.index()).into_iter().flatten());
        }
        self.matching.sort_unstable_by_key(|subscriber| (subscriber.subscription.queue, subscriber.number));
        if self.matching.is_empty() {
            self.memory.remember(name, None);
            return None;
        }
        let same_queue = |one: &Subscriber, other: &Subscriber| one.subscription.queue == other.subscription.queue;
        let merged = self.matching.chunk_by(same_queue).filter_map(merge);
        let targets: Targets = Some(merged.filter(|target| self.grants.receives(target.connection, name)).collect());
        self.memory.remember(name, targets.clone());
        targets
    }

    /// Removes a subscription from its place, and the place if nobody else is there.
    fn take_out(&mut self, queue: Queue, place: Place) {
        self.memory.change(&self.trie.filter(place));
        let Some(subscribers) = self.subscribers.get_mut(place.index()) else { return };
        let Some(position) = self.positions.remove(&(queue, place)).filter(|at| *at < subscribers.len()) else {
            return;
        };
        let removed = subscribers.swap_remove(position).subscription;
        if self.queues.get(&queue).is_none_or(|places| places.len() <= 1) {
            self.holders.remove(&(removed.connection, queue));
        }
        if let Some(moved) = subscribers.get(position) {
            self.positions.insert((moved.subscription.queue, place), position);
        }
        if subscribers.is_empty() {
            *subscribers = Vec::new();
            self.trie.remove(place);
        }
    }
}

fn check(filter: &[u8], subscription: &Subscription) -> Result<()> {
    let levels = filter.iter().filter(|byte| **byte == b'/').count().saturating_add(1);
    if !topic::is_valid_filter(filter) {
        Err(Error::Invalid("not a topic filter".to_owned()))
    } else if levels > limits::TOPIC_LEVELS_MAXIMUM {
        Err(Error::Invalid(format!("a topic filter of {levels} levels; {} may be", limits::TOPIC_LEVELS_MAXIMUM)))
    } else if subscription.qos > 2 {
        Err(Error::Invalid(format!("QoS {}", subscription.qos)))
    } else {
        Ok(())
    }
}

/// The one target of a queue's matching subscriptions. The owner's own messages go by those without No Local.
fn merge(subscribers: &[Subscriber]) -> Option<Target> {
    let newest = subscribers.last()?.subscription;
    let subscriptions = || subscribers.iter().map(|subscriber| &subscriber.subscription);
    let has_no_local = newest.owner != Party(0) && subscriptions().any(|subscription| subscription.no_local);
    let own = || (newest.owner, best(subscriptions().filter(|subscription| !subscription.no_local)));
    Some(Target {
        queue: newest.queue,
        connection: newest.connection,
        terms: best(subscriptions())?,
        own: has_no_local.then(|| Arc::new(own())),
    })
}

/// The terms that several subscriptions come to: highest QoS, all identifiers in the order of subscribing.
fn best<'a>(subscriptions: impl Iterator<Item = &'a Subscription> + Clone) -> Option<Terms> {
    let identified = subscriptions.clone().any(|subscription| subscription.identifier.is_some());
    let retain_as_published = subscriptions.clone().any(|subscription| subscription.retain_as_published);
    let identifiers = subscriptions.clone().filter_map(|subscription| subscription.identifier);
    Some(Terms {
        qos: subscriptions.map(|subscription| subscription.qos).max()?,
        retain_as_published,
        identifiers: identified.then(|| identifiers.collect()),
    })
}
