//! Topic names and their numbers.
//!
//! Owns: the dictionary, and what is known of each topic: its next entry number, where it was last declared, whether
//! a rule has it stored. Invariants:
//! 1. A number is given once and never to another name; numbers are dense, from 1.
//! 2. Names are also sorted, so that a filter looks only at the names that share its literal beginning.

use super::leap::{first_key, leap};
use super::shards::Shards;
use crate::error::{Error, Result};
use crate::ids::{LogPosition, TopicId};
use crate::limits::{FIELD_BYTES_MAXIMUM, TOPICS_MAXIMUM, TOPIC_NAMES_BYTES_MAXIMUM};
use crate::topic;
use ahash::RandomState;
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// What is known of a topic.
#[derive(Clone, Debug, Default)]
pub struct Topic {
    /// Its name; `None` if the record that said so has been lost.
    pub name: Option<Arc<[u8]>>,
    /// The entry number of its next message.
    pub next_entry: u64,
    /// The log position of its last topic record.
    pub declared_at: LogPosition,
    /// Twice the generation of the rules for which this was decided, plus one if they have the topic stored.
    store_all: u32,
}

/// All topics.
#[derive(Debug)]
pub struct Dictionary {
    ids: Shards<Arc<[u8]>, TopicId>,
    /// The topic that was asked for last by [`Dictionary::find_for_next`], or declared since.
    latest: TopicId,
    names: BTreeMap<Arc<[u8]>, TopicId>,
    topics: Vec<Topic>,
    /// Topics in the order in which their names became known: what is new for a filter is the end of it.
    named: Vec<TopicId>,
    names_bytes: usize,
    rules: Vec<Vec<u8>>,
    rules_generation: u32,
    /// The names of topics that keep all.
    keeping: HashSet<Vec<u8>, RandomState>,
}

impl Dictionary {
    /// An empty dictionary.
    pub fn new(seed: u64) -> Dictionary {
        Dictionary {
            ids: Shards::new(seed, 1),
            latest: TopicId(0),
            names: BTreeMap::new(),
            topics: Vec::new(),
            named: Vec::new(),
            names_bytes: 0,
            rules: Vec::new(),
            rules_generation: 1,
            keeping: HashSet::with_hasher(RandomState::with_seeds(seed, 2, 3, 4)),
        }
    }

    /// The number of a topic.
    pub fn find(&self, name: &[u8]) -> Option<TopicId> {
        self.ids.get(name).map(|(_, id)| *id)
    }

    /// The same for a message that is to be stored: mostly it is of the topic of the one before it.
    pub fn find_for_next(&mut self, name: &[u8]) -> Option<TopicId> {
        if self.get(self.latest).and_then(|topic| topic.name.as_deref()) != Some(name) {
            self.latest = self.find(name)?;
        }
        Some(self.latest)
    }

    /// The number that the next new topic gets; an error if there may be no more.
    pub fn next_id(&self) -> Result<TopicId> {
        let (topics, bytes) = (self.topics.len(), self.names_bytes);
        match u32::try_from(topics.saturating_add(1)) {
            Ok(id) if topics < TOPICS_MAXIMUM && bytes < TOPIC_NAMES_BYTES_MAXIMUM => Ok(TopicId(id)),
            _ => Err(Error::Invalid(format!("{topics} topics have names of {bytes} bytes; no more can be stored"))),
        }
    }

    /// Names a topic, as a topic record says. Numbers that were skipped are topics whose name is not known.
    pub fn declare(&mut self, id: TopicId, name: &[u8], next_entry: u64, declared_at: LogPosition) {
        if name.len() > FIELD_BYTES_MAXIMUM || self.place(id).is_none() {
            return;
        }
        let name: Arc<[u8]> = match self.ids.get(name) {
            Some((known, _)) => Arc::clone(known),
            None => name.into(),
        };
        if let Some(known) = self.ids.get_or_insert(Arc::clone(&name), || id) {
            *known = id;
        }
        self.latest = id;
        if self.names.insert(Arc::clone(&name), id).is_none() {
            self.names_bytes = self.names_bytes.saturating_add(name.len());
        }
        if let Some(topic) = self.topic_mut(id) {
            let is_new = topic.name.replace(name).is_none();
            topic.next_entry = topic.next_entry.max(next_entry);
            topic.declared_at = topic.declared_at.max(declared_at);
            self.named.extend(is_new.then_some(id));
        }
    }

    /// A message of the topic with this entry number is in the log.
    pub fn note_entry(&mut self, id: TopicId, entry: u64) {
        if self.place(id).is_some() {
            if let Some(topic) = self.topic_mut(id) {
                topic.next_entry = topic.next_entry.max(entry.saturating_add(1));
            }
        }
    }

    /// Takes the topic's next entry number.
    pub fn take_entry(&mut self, id: TopicId) -> u64 {
        let Some(topic) = self.topic_mut(id) else { return 0 };
        let entry = topic.next_entry;
        topic.next_entry = entry.saturating_add(1);
        entry
    }

    /// What is known of a topic.
    pub fn get(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(slot(id)?)
    }

    /// A topic's name; empty if it is not known.
    pub fn name(&self, id: TopicId) -> &[u8] {
        self.get(id).and_then(|topic| topic.name.as_deref()).unwrap_or_default()
    }

    /// A topic's name, shared.
    pub fn shared_name(&self, id: TopicId) -> Option<Arc<[u8]>> {
        self.get(id).and_then(|topic| topic.name.clone())
    }

    /// All topics with their numbers.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &Topic)> {
        (1_u32..).map(TopicId).zip(self.topics.iter())
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// How many names have become known.
    pub fn names_known(&self) -> usize {
        self.named.len()
    }

    /// The topic whose name became known as the one after so many others.
    pub fn named(&self, place: usize) -> Option<TopicId> {
        self.named.get(place).copied()
    }

    /// Appends the topics that `filter` matches to `found`.
    pub fn matching(&self, filter: &[u8], found: &mut Vec<TopicId>) {
        if !topic::has_wildcard(filter) {
            found.extend(self.find(filter));
            return;
        }
        leap(&self.names, filter, &mut first_key(filter), &mut u64::MAX.clone(), |_, id| {
            found.push(*id);
            true
        });
    }

    /// Adds topics that `filter` matches to `found`, from the name `from` on and with so many looks at names. True if
    /// that was all; else `from` is where it goes on.
    pub fn walk(&self, filter: &[u8], from: &mut Vec<u8>, looks: &mut u64, found: &mut RoaringBitmap) -> bool {
        leap(&self.names, filter, from, looks, |_, id| {
            found.insert(id.0);
            true
        })
    }

    /// The first `limit` topics after a name that `filter` matches (all, without one), in the order of their names.
    pub fn page(&self, filter: Option<&[u8]>, after: &[u8], limit: usize) -> Vec<TopicId> {
        let Some(filter) = filter else {
            let later = self.names.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
            return later.map(|(_, id)| *id).take(limit).collect();
        };
        let mut found = Vec::new();
        let mut from = after.to_vec();
        from.push(0);
        leap(&self.names, filter, &mut from.max(first_key(filter)), &mut u64::MAX.clone(), |_, id| {
            found.push(*id);
            found.len() < limit
        });
        found
    }

    /// Sets the filters of topics whose messages are stored at QoS 0 too.
    pub fn set_rules<Filter: AsRef<[u8]>>(&mut self, rules: &[Filter]) {
        let same =
            self.rules.len() == rules.len() && self.rules.iter().zip(rules).all(|(old, new)| old == new.as_ref());
        if !same {
            self.rules = rules.iter().map(|filter| filter.as_ref().to_vec()).collect();
            self.rules_generation = self.rules_generation.wrapping_add(1) & (u32::MAX >> 1);
        }
    }

    /// True if a rule has the topic's messages stored at QoS 0 too.
    pub fn is_stored_always(&mut self, name: &[u8]) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let generation = self.rules_generation.wrapping_mul(2);
        let known = self.find(name);
        if let Some(topic) = known.and_then(|id| self.get(id)) {
            if topic.store_all & !1 == generation {
                return topic.store_all & 1 == 1;
            }
        }
        let stored = self.rules.iter().any(|filter| topic::matches(filter, name));
        if let Some(topic) = known.and_then(|id| self.topic_mut(id)) {
            topic.store_all = generation | u32::from(stored);
        }
        stored
    }

    /// What comes at QoS 0 on the topic is kept for queues that are given entries whole, from now on or no longer.
    pub fn keep_all(&mut self, name: &[u8], keeps_all: bool) {
        if keeps_all {
            self.keeping.insert(name.to_vec());
        } else {
            self.keeping.remove(name);
        }
    }

    /// True if what comes at QoS 0 on the topic is kept.
    pub fn keeps_all(&self, name: &[u8]) -> bool {
        !self.keeping.is_empty() && self.keeping.contains(name)
    }

    fn topic_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.topics.get_mut(slot(id)?)
    }

    /// Makes room for a number that the log says exists; `None` if it is out of bounds.
    fn place(&mut self, id: TopicId) -> Option<()> {
        let slot = slot(id)?;
        if slot >= TOPICS_MAXIMUM {
            return None;
        }
        if slot >= self.topics.len() {
            self.topics.resize(slot.saturating_add(1), Topic::default());
        }
        Some(())
    }
}

fn slot(id: TopicId) -> Option<usize> {
    usize::try_from(id.0.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(names: &[&str]) -> Dictionary {
        let mut dictionary = Dictionary::new(1);
        for name in names {
            let id = dictionary.next_id().unwrap();
            dictionary.declare(id, name.as_bytes(), 0, LogPosition(0));
        }
        dictionary
    }

    #[test]
    fn a_filter_finds_what_it_matches_and_nothing_else() {
        let names = ["a", "a/b", "a/b/c", "ab", "b", "$x/y", "a/", "/", ""];
        let dictionary = dictionary(&names);
        for filter in ["a/#", "a/+", "+", "#", "+/b", "a/b", "$x/#", "nobody", "a/+/c", "/", "ab"] {
            let mut found = Vec::new();
            dictionary.matching(filter.as_bytes(), &mut found);
            let mut found: Vec<&[u8]> = found.into_iter().map(|id| dictionary.name(id)).collect();
            found.sort_unstable();
            let matching =
                names.iter().map(|name| name.as_bytes()).filter(|name| topic::matches(filter.as_bytes(), name));
            let mut expected: Vec<&[u8]> = matching.collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{filter}");
        }
    }

    #[test]
    fn no_topic_is_new_once_there_are_too_many_bytes_in_their_names() {
        let mut dictionary = dictionary(&["a/b", "c"]);
        dictionary.declare(TopicId(1), b"a/b", 7, LogPosition(9));
        assert_eq!(dictionary.names_bytes, 4);
        dictionary.names_bytes = TOPIC_NAMES_BYTES_MAXIMUM - 1;
        let last = dictionary.next_id().unwrap();
        dictionary.declare(last, b"d", 0, LogPosition(0));
        assert!(dictionary.next_id().is_err());
        assert_eq!(dictionary.find(b"d"), Some(last));
    }

    #[test]
    fn rules_apply_to_known_and_unknown_topics_and_can_change() {
        let mut dictionary = dictionary(&["a/b", "c"]);
        assert!(!dictionary.is_stored_always(b"a/b"));
        dictionary.set_rules(&[b"a/#"]);
        for _ in 0..2 {
            assert!(dictionary.is_stored_always(b"a/b"));
            assert!(dictionary.is_stored_always(b"a/new"));
            assert!(!dictionary.is_stored_always(b"c"));
        }
        dictionary.set_rules(&[b"c"]);
        assert!(!dictionary.is_stored_always(b"a/b"));
        assert!(dictionary.is_stored_always(b"c"));
    }

    #[test]
    fn a_number_from_a_damaged_log_does_not_allocate_without_bound() {
        let mut dictionary = dictionary(&[]);
        dictionary.declare(TopicId(u32::MAX), b"x", 0, LogPosition(0));
        dictionary.note_entry(TopicId(u32::MAX), 5);
        assert_eq!(dictionary.len(), 0);
    }
}
