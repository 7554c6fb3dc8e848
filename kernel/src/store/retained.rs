//! The retained message of each topic: where it is stored.

use super::dictionary::literal_range;
use super::record::Record;
use crate::ids::{Location, Offset, Timestamp, TopicId};
use crate::topic;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A retained message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Its topic.
    pub topic: TopicId,
    /// Its record.
    pub location: Location,
    /// Its offset.
    pub offset: Offset,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
}

impl Retained {
    /// What a message with the RETAIN flag makes the retained message of its topic: itself, or none if its payload is
    /// empty [MQTT-3.3.1-6].
    pub fn of(record: &Record<'_>, location: Location) -> Option<Retained> {
        let (topic, offset, expires_at) = (record.topic, record.offset, record.expires_at);
        (!record.payload.is_empty()).then_some(Retained { topic, location, offset, expires_at })
    }
}

/// All retained messages, sorted by topic name.
#[derive(Debug, Default)]
pub struct RetainedMessages {
    by_name: BTreeMap<Arc<[u8]>, Retained>,
}

impl RetainedMessages {
    /// Sets the retained message of a topic, or deletes it.
    pub fn change(&mut self, name: Arc<[u8]>, retained: Option<Retained>) {
        match retained {
            Some(retained) => self.insert(name, retained),
            None => {
                self.by_name.remove(&name);
            }
        }
    }

    /// Sets the retained message of a topic.
    pub fn insert(&mut self, name: Arc<[u8]>, retained: Retained) {
        self.by_name.insert(name, retained);
    }

    /// The retained message of a topic has been copied.
    pub fn relocate(&mut self, name: &[u8], offset: Offset, location: Location) {
        if let Some(retained) = self.by_name.get_mut(name).filter(|retained| retained.offset == offset) {
            retained.location = location;
        }
    }

    /// The first `limit` offsets of those that match, in offset order.
    pub fn matching(&self, filter: &[u8], limit: usize) -> Vec<Offset> {
        let candidates = literal_range(&self.by_name, filter);
        let mut offsets: Vec<Offset> =
            candidates.filter(|(name, _)| topic::matches(filter, name)).map(|(_, retained)| retained.offset).collect();
        offsets.sort_unstable();
        offsets.truncate(limit);
        offsets
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Retained> {
        self.by_name.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}
