//! Messages of QoS 0 that wait for a connection which cannot be written to, in memory, in their order.
//!
//! Owns: those messages, and the count of what went on. Never: more bytes than it may; the oldest go first, and are
//! counted by who puts them here.

use super::publish::{Writing, WritingProperties};
use super::recurrence::Recurrence;
use super::rewriting::{Rewriting, Rewritten};
use crate::ids::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;

/// What one message takes beside its own bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// What was written to another broker since messages are carried on to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Messages, each as often as it was written.
    pub sent: u64,
    /// Those that were written with DUP.
    pub repeated: u64,
    /// Those of the others whose content had been written lately, where no hops are counted.
    pub again: u64,
    /// Messages of QoS 0 that came, written or not.
    pub passing: u64,
}

impl Carried {
    /// A message has been written.
    pub(super) fn count(&mut self, writing: &Writing<'_>, recurrence: &mut Option<Recurrence>) {
        self.sent += 1;
        self.repeated += u64::from(writing.dup);
        if let (Some(recurrence), false) = (recurrence, writing.dup) {
            self.again += u64::from(recurrence.is_again(writing.topic, writing.payload));
        }
    }
}

#[derive(Debug)]
struct Message {
    retain: bool,
    expires_at: Option<Timestamp>,
    topic_bytes: usize,
    properties_bytes: usize,
    /// Topic, properties and payload, one behind the other.
    bytes: Box<[u8]>,
}

impl Message {
    fn weight(&self) -> usize {
        self.bytes.len() + MESSAGE_OVERHEAD_BYTES
    }
}

/// How messages are carried on over one connection.
#[derive(Debug)]
pub(super) struct Carrying {
    pub rewriting: Arc<Rewriting>,
    pub rewritten: Rewritten,
    pub shelf: Shelf,
    pub carried: Carried,
    pub recurrence: Option<Recurrence>,
    /// Messages of QoS 0 wait although they could be written.
    pub is_held: bool,
}

/// Messages that wait for one connection.
#[derive(Debug, Default)]
pub struct Shelf {
    messages: VecDeque<Message>,
    bytes: usize,
    bytes_maximum: usize,
}

impl Shelf {
    /// An empty shelf that holds so many bytes.
    pub fn new(bytes_maximum: usize) -> Shelf {
        Shelf { bytes_maximum, ..Shelf::default() }
    }

    /// Messages, and the bytes that they take.
    pub fn size(&self) -> (usize, usize) {
        (self.messages.len(), self.bytes)
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Puts a message behind the others; returns how many had to go for it, which may be itself.
    pub fn put(&mut self, writing: &Writing<'_>, now: Timestamp) -> u64 {
        let properties = writing.properties.unwrap_or_default();
        let expires_at = properties.expiry_interval_s.map(|s| Timestamp(now.0 + u64::from(s) * 1_000_000));
        let message = Message {
            retain: writing.retain,
            expires_at,
            topic_bytes: writing.topic.len(),
            properties_bytes: properties.encoded.len(),
            bytes: [writing.topic, properties.encoded, writing.payload].concat().into(),
        };
        if message.weight() > self.bytes_maximum {
            return 1;
        }
        self.bytes += message.weight();
        self.messages.push_back(message);
        let mut gone = 0;
        while self.bytes > self.bytes_maximum && self.take().is_some() {
            gone += 1;
        }
        gone
    }

    /// Hands the oldest message to `write`, with its interval as it is now, and forgets it; `None` if its time was
    /// over.
    pub fn hand_out<T>(&mut self, now: Timestamp, write: impl FnOnce(&Writing<'_>) -> T) -> Option<T> {
        let message = self.take()?;
        let remaining_us = message.expires_at.map(|at| at.0.saturating_sub(now.0));
        if remaining_us == Some(0) {
            return None;
        }
        let (topic, rest) = message.bytes.split_at_checked(message.topic_bytes)?;
        let (encoded, payload) = rest.split_at_checked(message.properties_bytes)?;
        let expiry_interval_s = remaining_us.map(|left| u32::try_from(left.div_ceil(1_000_000)).unwrap_or(u32::MAX));
        let properties = WritingProperties { expiry_interval_s, encoded, ..WritingProperties::default() };
        Some(write(&Writing {
            dup: false,
            qos: 0,
            retain: message.retain,
            packet_identifier: 0,
            topic,
            payload,
            properties: Some(properties),
        }))
    }

    fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes = self.bytes.saturating_sub(message.weight());
        Some(message)
    }
}
