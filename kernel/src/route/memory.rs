//! What each topic matched, remembered until a filter that matches it changes.
//!
//! Owns: targets per topic name, within [`limits::ROUTE_CACHE_TOPICS_MAXIMUM`] topics and
//! [`limits::ROUTE_CACHE_TARGETS_MAXIMUM`] targets; a memory that is full is emptied. Never: walks the trie.
//!
//! Invariant: what `recall` returns is what the trie would give now.
//!
//! A changed filter without a wildcard concerns one topic, which is forgotten. A changed filter with one could
//! concern any, and to look through all topics would make each subscribe cost milliseconds; to forget all of them
//! would make each publish walk the trie while clients come and go. So the last changes are kept in a row, and a
//! topic is compared with those it has not seen when it is next asked for: a change costs nothing at once, a
//! topic that nobody publishes to costs nothing at all, a busy one pays each change once. A topic that is behind
//! by more than the row is forgotten, since to compare it would cost as much as to walk.

use crate::flow::Target;
use crate::{limits, topic};
use ahash::RandomState;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The targets of a topic; `None` where nobody gets it.
pub type Targets = Option<Arc<[Target]>>;

#[derive(Debug)]
struct Remembered {
    targets: Targets,
    /// The number of changes that the targets take into account.
    changes: u64,
}

/// Targets by topic name.
#[derive(Debug)]
pub struct Memory {
    topics: HashMap<Box<[u8]>, Remembered, RandomState>,
    /// The sum of all topics' targets.
    targets: usize,
    /// The newest changed filters that have wildcards.
    changed: VecDeque<Vec<u8>>,
    /// How many such changes there have ever been.
    changes: u64,
}

impl Memory {
    /// An empty memory.
    pub fn new(hashing: RandomState) -> Memory {
        Memory { topics: HashMap::with_hasher(hashing), targets: 0, changed: VecDeque::new(), changes: 0 }
    }

    /// What the topic is known to match; `None` if that is not known.
    pub fn recall(&mut self, name: &[u8]) -> Option<&Targets> {
        let remembered = self.topics.get_mut(name)?;
        if remembered.changes != self.changes {
            let unseen = usize::try_from(self.changes - remembered.changes).unwrap_or(usize::MAX);
            let first = self.changed.len().checked_sub(unseen)?;
            if self.changed.range(first..).any(|filter| topic::matches(filter, name)) {
                return None;
            }
            remembered.changes = self.changes;
        }
        Some(&remembered.targets)
    }

    /// Remembers what a topic matches now. A long name is not worth its memory.
    pub fn remember(&mut self, name: &[u8], targets: Targets) {
        self.forget(name);
        let size = targets.as_ref().map_or(0, |targets| targets.len());
        if name.len() > limits::ROUTE_CACHE_TOPIC_BYTES_MAXIMUM || size > limits::ROUTE_CACHE_TARGETS_MAXIMUM {
            return;
        }
        let full = self.topics.len() >= limits::ROUTE_CACHE_TOPICS_MAXIMUM;
        if full || self.targets + size > limits::ROUTE_CACHE_TARGETS_MAXIMUM {
            self.topics.clear();
            self.targets = 0;
        }
        self.targets += size;
        self.topics.insert(name.into(), Remembered { targets, changes: self.changes });
    }

    /// Subscriptions to this filter have changed.
    pub fn change(&mut self, filter: &[u8]) {
        if !filter.iter().any(|byte| matches!(byte, b'+' | b'#')) {
            return self.forget(filter);
        }
        if self.changed.len() >= limits::ROUTE_CHANGES_MAXIMUM {
            self.changed.pop_front();
        }
        self.changed.push_back(filter.to_vec());
        self.changes += 1;
    }

    fn forget(&mut self, name: &[u8]) {
        if let Some(Remembered { targets: Some(targets), .. }) = self.topics.remove(name) {
            self.targets -= targets.len();
        }
    }
}
