//! Which topics a filter matches: found once, then held against new topics only.
//!
//! Owns: the sets of topics that filters match, while there is room for them, and how many messages those topics have
//! in each sealed segment. Never: is needed for an answer; what is forgotten is found again, in pieces.
//!
//! Invariants:
//! 1. A set that is remembered holds every topic below its `seen` that the filter matches.
//! 2. Learning goes on where it stopped, whatever else is learned or forgotten in between: it ends.

use super::cache::Cache;
use super::dictionary::Dictionary;
use super::encoding::{index64, wide};
use super::leap::first_key;
use super::levels::Levels;
use crate::ids::TopicId;
use crate::limits::{FILTER_CATCH_UP_MAXIMUM, FILTER_MEMORY_BYTES_MAXIMUM};
use crate::topic;
use roaring::RoaringBitmap;
use std::collections::HashMap;
use std::sync::Arc;

/// Topics by number.
pub(super) type Topics = Arc<RoaringBitmap>;

/// Names that are looked at however little effort is left, so that every piece gets on.
const LOOKS_MINIMUM: u64 = 16;

/// What it costs to hold a name against a filter: one of a hundred thousand lies in no cache of the processor.
const LOOK_EFFORT: u64 = 2;

/// What a remembered set costs beside its topics.
const SET_OVERHEAD_BYTES: usize = 200;

/// What a tally costs.
const TALLY_BYTES: usize = 48;

/// What a sealed segment has of a set of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Messages of QoS 1 and 2.
    pub messages: u64,
    /// Their bytes: each as many as the messages of its topic have there on average.
    pub bytes: u64,
    /// The second in which the first of them expires; 0 if none ever does.
    pub expires_s: u32,
}

impl Tally {
    /// Both together.
    pub fn and(self, other: Tally) -> Tally {
        let expires_s = match (self.expires_s, other.expires_s) {
            (0, other) | (other, 0) => other,
            (one, other) => one.min(other),
        };
        Tally {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
            expires_s,
        }
    }
}

/// What is remembered of filters.
pub(super) struct FilterMemory {
    sets: Cache<Arc<[u8]>, Remembered>,
    levels: Levels,
}

struct Remembered {
    topics: Topics,
    /// So many of the dictionary's names have been looked at; `None` where that is not known.
    seen: Option<usize>,
    tallies: HashMap<u32, Tally>,
}

/// The sets of some filters on the way to being known, in their order.
#[derive(Default)]
pub(super) struct Learning {
    known: Vec<Topics>,
    walk: Option<Walk>,
}

/// One filter that is being looked up.
struct Walk {
    topics: RoaringBitmap,
    way: Way,
    /// Names from here on are new since the walk began.
    seen: usize,
}

/// How the names known when the walk began are gone through.
enum Way {
    /// By their levels, once all of them are known.
    Levels,
    /// These are left to be compared with the filter.
    Candidates(RoaringBitmap),
    /// In their order, from this one on.
    Names(Vec<u8>),
    /// They have been.
    Done,
}

impl FilterMemory {
    /// Nothing is remembered.
    pub fn new(seed: u64) -> FilterMemory {
        FilterMemory { sets: Cache::new(FILTER_MEMORY_BYTES_MAXIMUM, seed), levels: Levels::new(seed) }
    }

    /// Bytes of what is remembered of them.
    pub fn bytes(&self) -> usize {
        self.sets.bytes()
    }

    /// Gets ready for filters: takes in the levels of all names, until `effort` has reached `until`; true once that is
    /// done.
    pub fn prepare(&mut self, dictionary: &Dictionary, effort: (&mut u64, u64)) -> bool {
        self.levels.learn(dictionary, dictionary.names_known(), effort)
    }

    /// What a segment has of the topics of a filter, if that was found before.
    pub fn tally(&mut self, filter: &[u8], segment: u32) -> Option<Tally> {
        self.sets.get(filter)?.tallies.get(&segment).copied()
    }

    /// Remembers what a sealed segment, one of `segments`, has of the topics of a filter.
    pub fn put_tally(&mut self, filter: &[u8], topics: &Topics, segment: u32, tally: Tally, segments: usize) {
        let kept = self.sets.remove(filter);
        // Of the names known before it is not said which have been looked at, so it answers for tallies alone.
        let mut kept =
            kept.unwrap_or_else(|| Remembered { topics: Arc::clone(topics), seen: None, tallies: HashMap::new() });
        if kept.tallies.len() > segments.saturating_mul(2) {
            // Most are of segments that retention has removed.
            kept.tallies.clear();
        }
        kept.tallies.insert(segment, tally);
        self.put(filter, kept);
    }

    fn put(&mut self, name: &[u8], remembered: Remembered) {
        let topics = remembered.topics.serialized_size();
        let tallies = remembered.tallies.len().saturating_mul(TALLY_BYTES);
        let size = topics.saturating_add(tallies).saturating_add(name.len()).saturating_add(SET_OVERHEAD_BYTES);
        self.sets.put(name.into(), remembered, size);
    }
}

impl Learning {
    /// True if it has not begun.
    pub fn is_new(&self) -> bool {
        self.known.is_empty() && self.walk.is_none()
    }

    /// Learns on until `effort` has reached `until`. Returns the sets once all are known, one for each filter.
    pub fn learn<'f>(
        &mut self,
        filters: impl Iterator<Item = &'f [u8]>,
        memory: &mut FilterMemory,
        dictionary: &Dictionary,
        (effort, until): (&mut u64, u64),
    ) -> Option<&[Topics]> {
        for (place, filter) in filters.skip(self.known.len()).enumerate() {
            if place > 0 && *effort >= until {
                return None;
            }
            *effort = effort.saturating_add(1);
            if !topic::has_wildcard(filter) {
                let topics = dictionary.find(filter).map(|id| id.0).into_iter().collect();
                self.known.push(Arc::new(topics));
                continue;
            }
            let mut walk = self.walk.take().unwrap_or_else(|| Walk::begin(filter, memory, dictionary));
            if !walk.go_on(filter, memory, dictionary, (effort, until)) {
                self.walk = Some(walk);
                return None;
            }
            self.known.push(walk.end(filter, memory));
        }
        Some(&self.known)
    }
}

impl Walk {
    /// From what is remembered; from the beginning where nothing is, or so much is new that the names are quicker.
    fn begin(filter: &[u8], memory: &mut FilterMemory, dictionary: &Dictionary) -> Walk {
        let remembered = memory.sets.get(filter).and_then(|known| Some((known.seen?, &known.topics)));
        let remembered = remembered.filter(|(seen, topics)| {
            wide(dictionary.names_known().saturating_sub(*seen)) <= FILTER_CATCH_UP_MAXIMUM.saturating_add(topics.len())
        });
        match remembered {
            Some((seen, topics)) => Walk { topics: topics.as_ref().clone(), way: Way::Done, seen },
            None => Walk { topics: RoaringBitmap::new(), way: Way::Levels, seen: dictionary.names_known() },
        }
    }

    fn go_on(
        &mut self,
        filter: &[u8],
        memory: &mut FilterMemory,
        dictionary: &Dictionary,
        (effort, until): (&mut u64, u64),
    ) -> bool {
        if matches!(self.way, Way::Levels) {
            if !memory.levels.learn(dictionary, self.seen, (&mut *effort, until)) {
                return false;
            }
            let candidates = memory.levels.candidates(filter);
            self.way = candidates.map_or_else(|| Way::Names(first_key(filter)), Way::Candidates);
        }
        match &mut self.way {
            Way::Names(from) => {
                let allowed = (until.saturating_sub(*effort) / LOOK_EFFORT).max(LOOKS_MINIMUM);
                let mut looks = allowed;
                let is_done = dictionary.walk(filter, from, &mut looks, &mut self.topics);
                *effort = effort.saturating_add(allowed.saturating_sub(looks).saturating_mul(LOOK_EFFORT));
                if !is_done {
                    return false;
                }
            }
            Way::Candidates(left) => {
                let allowed = (until.saturating_sub(*effort) / LOOK_EFFORT).max(LOOKS_MINIMUM).min(left.len());
                let candidates = left.iter().take(index64(allowed));
                self.topics.extend(candidates.filter(|id| topic::matches(filter, dictionary.name(TopicId(*id)))));
                *effort = effort.saturating_add(allowed.saturating_mul(LOOK_EFFORT));
                left.remove_smallest(allowed);
                if !left.is_empty() {
                    return false;
                }
            }
            Way::Levels | Way::Done => {}
        }
        self.way = Way::Done;
        let least = self.seen.saturating_add(1);
        while let Some(id) = dictionary.named(self.seen) {
            if *effort >= until && self.seen >= least {
                return false;
            }
            *effort = effort.saturating_add(LOOK_EFFORT);
            self.seen = self.seen.saturating_add(1);
            if topic::matches(filter, dictionary.name(id)) {
                self.topics.insert(id.0);
            }
        }
        true
    }

    fn end(self, filter: &[u8], memory: &mut FilterMemory) -> Topics {
        let kept = memory.sets.remove(filter);
        let unchanged = kept.as_ref().filter(|kept| kept.topics.len() == self.topics.len());
        let topics = unchanged.map_or_else(|| Arc::new(self.topics), |kept| Arc::clone(&kept.topics));
        // A new topic has nothing in segments that were sealed before it.
        let tallies = kept.map(|kept| kept.tallies).unwrap_or_default();
        memory.put(filter, Remembered { topics: Arc::clone(&topics), seen: Some(self.seen), tallies });
        topics
    }
}

/// The topics of all sets.
pub(super) fn union<'a>(mut sets: impl ExactSizeIterator<Item = &'a Topics>) -> Topics {
    match (sets.len(), sets.next()) {
        (1, Some(one)) => Arc::clone(one),
        (_, first) => {
            let mut all = first.map(|first| first.as_ref().clone()).unwrap_or_default();
            sets.for_each(|set| all |= set.as_ref());
            Arc::new(all)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LogPosition;
    use proptest::prelude::*;

    fn learned(memory: &mut FilterMemory, dictionary: &Dictionary, filter: &str, at_once: u64) -> (Vec<u32>, u64) {
        let (mut learning, mut effort) = (Learning::default(), 0);
        loop {
            let until = effort + at_once;
            let sets = learning.learn([filter.as_bytes()].into_iter(), memory, dictionary, (&mut effort, until));
            if let Some([topics]) = sets {
                return (topics.iter().collect(), effort);
            }
        }
    }

    fn declare(dictionary: &mut Dictionary, name: &str) {
        if dictionary.find(name.as_bytes()).is_none() {
            let id = dictionary.next_id().unwrap();
            dictionary.declare(id, name.as_bytes(), 0, LogPosition(0));
        }
    }

    fn level() -> impl Strategy<Value = String> {
        prop_oneof!["[ab!]", "[ab$]{0,2}"]
    }

    proptest! {
        #[test]
        fn a_filter_knows_its_topics_whatever_is_declared_between_two_looks(
            names in prop::collection::vec(prop::collection::vec(level(), 1..6), 1..60),
            filters in prop::collection::vec(
                (prop::collection::vec(prop_oneof![level(), Just("+".to_owned())], 1..6), any::<bool>()), 1..4),
            at_once in 1_u64..40,
            is_prepared in any::<bool>(),
        ) {
            let (mut memory, mut dictionary) = (FilterMemory::new(1), Dictionary::new(1));
            for part in names.chunks(names.len() / 2 + 1) {
                part.iter().for_each(|name| declare(&mut dictionary, &name.join("/")));
                if is_prepared {
                    let mut effort = 0;
                    prop_assert!(memory.prepare(&dictionary, (&mut effort, u64::MAX)));
                }
                for (levels, is_open) in &filters {
                    let filter = levels.join("/") + if *is_open { "/#" } else { "" };
                    let expected: Vec<u32> = dictionary
                        .topics()
                        .filter(|(id, _)| topic::matches(filter.as_bytes(), dictionary.name(*id)))
                        .map(|(id, _)| id.0)
                        .collect();
                    prop_assert_eq!(learned(&mut memory, &dictionary, &filter, at_once).0, expected);
                }
            }
        }
    }

    #[test]
    fn filters_that_match_nothing_cost_little_once_the_levels_of_all_names_are_known() {
        let (mut memory, mut dictionary) = (FilterMemory::new(1), Dictionary::new(1));
        (0..20_000).for_each(|number| declare(&mut dictionary, &format!("site/{number}/unit/{number}/a/b/c")));
        let mut effort = 0;
        assert!(memory.prepare(&dictionary, (&mut effort, u64::MAX)));
        for filter in ["site/+/unit/+/nobody", "+/+/+/+/a", "+/7/+/8/#", "+/+/unit/+", "nobody/+/#"] {
            let (topics, effort) = learned(&mut memory, &dictionary, filter, 1_000);
            assert!(topics.is_empty() && effort <= LOOKS_MINIMUM * LOOK_EFFORT, "{filter}: {effort}");
        }
        assert_eq!(learned(&mut memory, &dictionary, "+/+/unit/7/#", 1_000).0, [8]);
        assert!(learned(&mut memory, &dictionary, "site/+/unit/+/a/#", 1_000).1 >= 20_000 * LOOK_EFFORT);
    }
}
