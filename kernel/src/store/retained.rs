//! The retained message of each topic.

use super::leap::{first_key, leap};
use super::record::Record;
use crate::flow::moment::RetainedRows;
use crate::ids::{LogPosition, Offset, Timestamp, TopicId};
use crate::limits::{RETAINED_LOOKED_AT_MAXIMUM, RETAINED_LOOKS_MAXIMUM};
use crate::topic;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The moment that is copied: what was retained then, by names.
#[derive(Debug)]
struct Instant {
    /// What was stored behind the moment has an offset from here on.
    end: Offset,
    /// The walk has come to this name.
    after: Option<Arc<[u8]>>,
    copied: RetainedRows,
}

impl Instant {
    /// The message of this name is replaced, or removed.
    fn before_change(&mut self, name: &Arc<[u8]>, retained: Retained) {
        if retained.offset < self.end && self.after.as_ref().is_none_or(|after| after < name) {
            self.copied.push((Arc::clone(name), retained.offset, retained.expires_at));
        }
    }
}

/// A retained message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Its topic.
    pub topic: TopicId,
    /// Its offset.
    pub offset: Offset,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
}

impl Retained {
    /// What a message with the RETAIN flag makes the retained message of its topic: itself, or none if its payload is
    /// empty [MQTT-3.3.1-6].
    pub fn of(record: &Record<'_>) -> Option<Retained> {
        let (topic, offset, expires_at) = (record.topic, record.offset, record.expires_at);
        (!record.payload.is_empty()).then_some(Retained { topic, offset, expires_at })
    }
}

/// All retained messages, sorted by topic name, and their names by offset.
#[derive(Debug, Default)]
pub struct RetainedMessages {
    by_name: BTreeMap<Arc<[u8]>, Retained>,
    by_offset: BTreeMap<Offset, Arc<[u8]>>,
    /// What was replaced by a record that is durable once the log is durable up to here: a crash before brings it back.
    in_doubt: VecDeque<(LogPosition, Offset)>,
    instant: Option<Instant>,
}

impl RetainedMessages {
    /// Sets the retained message of a topic, or deletes it.
    pub fn change(&mut self, name: Arc<[u8]>, retained: Option<Retained>) {
        match retained {
            Some(retained) => self.insert(name, retained),
            None => {
                if let Some(removed) = self.by_name.remove(&name) {
                    if let Some(instant) = &mut self.instant {
                        instant.before_change(&name, removed);
                    }
                    self.by_offset.remove(&removed.offset);
                }
            }
        }
    }

    /// The same by a record that is durable at `durable_at`, while the log is durable up to `durable`.
    pub fn change_at(
        &mut self,
        name: Arc<[u8]>,
        retained: Option<Retained>,
        (durable_at, durable): (LogPosition, LogPosition),
    ) {
        self.pass_durable(durable);
        let replaced = self.by_name.get(&name).map(|kept| (durable_at, kept.offset));
        self.in_doubt.extend(replaced);
        self.change(name, retained);
    }

    /// Offsets of messages that are replaced, and that a crash would bring back.
    pub fn in_doubt(&mut self, durable: LogPosition) -> impl Iterator<Item = Offset> + '_ {
        self.pass_durable(durable);
        self.in_doubt.iter().map(|(_, offset)| *offset)
    }

    fn pass_durable(&mut self, durable: LogPosition) {
        while self.in_doubt.front().is_some_and(|(durable_at, _)| *durable_at <= durable) {
            self.in_doubt.pop_front();
        }
    }

    /// Sets the retained message of a topic.
    pub fn insert(&mut self, name: Arc<[u8]>, retained: Retained) {
        if let Some(replaced) = self.by_name.insert(Arc::clone(&name), retained) {
            if let Some(instant) = &mut self.instant {
                instant.before_change(&name, replaced);
            }
            self.by_offset.remove(&replaced.offset);
        }
        self.by_offset.insert(retained.offset, name);
    }

    /// Offsets of those that match, from `from` up to `until`, in their order: `limit` at most, and up to which offset
    /// that is all. Where few names can match, they are looked at; where many can, some follow by their offsets.
    pub fn page(&self, filter: &[u8], from: Offset, until: Offset, limit: usize) -> (Vec<Offset>, Offset) {
        let Some(mut offsets) = self.matching_few(filter) else { return self.walk(filter, from, until, limit) };
        offsets.retain(|offset| (from..until).contains(offset));
        offsets.sort_unstable();
        let reached = offsets.get(limit).copied().unwrap_or(until);
        offsets.truncate(limit);
        (offsets, reached)
    }

    /// All that match, in no particular order; `None` if too many names would have to be looked at.
    fn matching_few(&self, filter: &[u8]) -> Option<Vec<Offset>> {
        if !topic::has_wildcard(filter) {
            return Some(self.by_name.get(filter).map(|retained| retained.offset).into_iter().collect());
        }
        let (mut found, mut looks) = (Vec::new(), RETAINED_LOOKS_MAXIMUM);
        let is_all = leap(&self.by_name, filter, &mut first_key(filter), &mut looks, |_, retained| {
            found.push(retained.offset);
            true
        });
        is_all.then_some(found)
    }

    fn walk(&self, filter: &[u8], from: Offset, until: Offset, limit: usize) -> (Vec<Offset>, Offset) {
        let mut offsets = Vec::new();
        for (looked, (offset, name)) in self.by_offset.range(from..until.max(from)).enumerate() {
            if offsets.len() >= limit || looked >= RETAINED_LOOKED_AT_MAXIMUM {
                return (offsets, *offset);
            }
            if topic::matches(filter, name) {
                offsets.push(*offset);
            }
        }
        (offsets, until)
    }

    /// What is retained at this moment, where the log ends at `end`, is to be copied, while it changes.
    pub fn begin_instant(&mut self, end: Offset) {
        self.instant = Some(Instant { end, after: None, copied: RetainedRows::new() });
    }

    /// What has been copied since the last call, with about `effort` more of it; true if that was all.
    pub fn instant_piece(&mut self, effort: usize) -> (RetainedRows, bool) {
        let Some(instant) = &mut self.instant else { return (RetainedRows::new(), true) };
        let (mut copied, mut looked_at) = (std::mem::take(&mut instant.copied), 0_usize);
        let after = instant.after.clone();
        let first = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for (name, retained) in self.by_name.range::<[u8], _>((first, Bound::Unbounded)) {
            if looked_at >= effort {
                return (copied, false);
            }
            if retained.offset < instant.end {
                copied.push((Arc::clone(name), retained.offset, retained.expires_at));
            }
            instant.after = Some(Arc::clone(name));
            looked_at = looked_at.saturating_add(1);
        }
        self.instant = None;
        (copied, true)
    }

    /// Those behind a name, or all of them, in the order of their names.
    pub fn after(&self, name: Option<&[u8]>) -> impl Iterator<Item = (&Arc<[u8]>, &Retained)> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<[u8], _>((first, Bound::Unbounded))
    }

    /// The offsets of those between two.
    pub fn between(&self, from: Offset, until: Offset) -> impl Iterator<Item = Offset> + '_ {
        self.by_offset.range(from..until.max(from)).map(|(offset, _)| *offset)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}
