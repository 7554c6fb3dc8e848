//! Topic aliases towards one client (MQTT 5 section 3.3.2.3.4): which topics stand behind a number.
//!
//! Owns: the numbers given out on one connection. Never: writes a packet; a number is bound when the PUBLISH that
//! gives it its topic has been written.
//!
//! Topics get numbers as they come. When there are no more, a topic that comes again while few others did takes over
//! the next number in turn: a handful of topics that change are followed, and thousands in turn cost no bytes.

use crate::limits::{ALIASES_SENT_MAXIMUM, ALIAS_TOPIC_BYTES_MAXIMUM};
use ahash::RandomState;

/// A number costs three bytes each time, and a shorter topic saves too little for being looked up.
const TOPIC_BYTES_MINIMUM: usize = 8;

/// Who makes two topics collide gets no number for one of them, so the seeds need not be secret.
const HASHING: RandomState = RandomState::with_seeds(61, 62, 63, 64);

/// What stands for a topic in a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The topic itself.
    None,
    /// A number that is bound to it.
    Known(u16),
    /// The topic, and a number that is to be bound to it with this hash.
    New(u16, u64),
}

/// The numbers of one connection.
#[derive(Debug, Default)]
pub struct Aliases {
    /// Of the topic behind each number, from 1 on.
    hashes: Vec<u64>,
    topics: Vec<Box<[u8]>>,
    /// The place of the one that was chosen last: messages of one topic come in a row.
    last: usize,
    /// Hashes of topics without a number, by their remainder: who comes twice finds itself. Empty until it is needed.
    seen: Vec<u64>,
    /// How often a number was taken over.
    taken_over: usize,
}

impl Aliases {
    /// What is to stand for `topic`, with at most `maximum` numbers.
    pub fn choose(&mut self, topic: &[u8], maximum: u16) -> Alias {
        if topic.len() < TOPIC_BYTES_MINIMUM || topic.len() > ALIAS_TOPIC_BYTES_MAXIMUM {
            return Alias::None;
        }
        if self.topics.get(self.last).is_some_and(|last| **last == *topic) {
            return Alias::Known(number(self.last));
        }
        let maximum = usize::from(maximum.min(ALIASES_SENT_MAXIMUM));
        let hash = HASHING.hash_one(topic);
        if let Some(place) = self.hashes.iter().position(|other| *other == hash) {
            let is_ours = self.topics.get(place).is_some_and(|other| **other == *topic);
            self.last = place;
            return if is_ours { Alias::Known(number(place)) } else { Alias::None };
        }
        if self.topics.len() < maximum {
            return Alias::New(number(self.topics.len()), hash);
        }
        self.seen.resize(maximum, 0);
        let places = u64::try_from(maximum).unwrap_or(u64::MAX);
        let place = usize::try_from(hash.checked_rem(places).unwrap_or_default()).unwrap_or_default();
        match self.seen.get_mut(place) {
            Some(seen) if *seen == hash => {
                Alias::New(number(self.taken_over.checked_rem(maximum).unwrap_or_default()), hash)
            }
            Some(seen) => {
                *seen = hash;
                Alias::None
            }
            None => Alias::None,
        }
    }

    /// The PUBLISH that gives `alias` its `topic` was written.
    pub fn bind(&mut self, alias: u16, topic: &[u8], hash: u64) {
        let place = usize::from(alias.saturating_sub(1));
        match (self.hashes.get_mut(place), self.topics.get_mut(place)) {
            (Some(hashed), Some(named)) => {
                *hashed = hash;
                *named = topic.into();
                self.taken_over = self.taken_over.wrapping_add(1);
            }
            _ => {
                self.hashes.push(hash);
                self.topics.push(topic.into());
            }
        }
    }
}

fn number(place: usize) -> u16 {
    u16::try_from(place.saturating_add(1)).unwrap_or_default()
}
