//! Which topics have a certain level at a certain depth, so that a filter with a literal level behind a wildcard looks
//! only at topics that have it.
//!
//! Owns: sets of candidates. Never: says that a filter matches; two levels may share a set, and whoever asks compares.
//!
//! Bounded by the dictionary: for each topic some four bytes a level, and some 40 for a level that no other topic has.

use super::dictionary::Dictionary;
use super::encoding::wide;
use super::shards::Shards;
use crate::limits::LEVELS_INDEXED_MAXIMUM;
use ahash::RandomState;
use roaring::RoaringBitmap;

/// Topics by their levels.
pub(super) struct Levels {
    sets: Shards<u64, Set>,
    hasher: RandomState,
    /// So many of the dictionary's names are in it.
    seen: usize,
}

/// Most levels that are not shared by many topics belong to one alone.
enum Set {
    One(u32),
    Many(Box<RoaringBitmap>),
}

/// What a set is about.
#[derive(Hash)]
enum Trait<'a> {
    /// The level at this depth.
    Level(usize, &'a [u8]),
    /// The number of levels.
    Count(usize),
}

impl Levels {
    /// No topic is known. `seed` keeps clients from choosing levels that collide.
    pub fn new(seed: u64) -> Levels {
        Levels { sets: Shards::new(seed, 81), hasher: RandomState::with_seeds(seed, 84, 82, 83), seen: 0 }
    }

    /// Takes in names that are new, until `effort` has reached `until`; true once so many are in.
    pub fn learn(&mut self, dictionary: &Dictionary, names: usize, (effort, until): (&mut u64, u64)) -> bool {
        while let Some(id) = dictionary.named(self.seen).filter(|_| self.seen < names) {
            let mut count: usize = 0;
            for (depth, level) in dictionary.name(id).split(|byte| *byte == b'/').enumerate() {
                count = count.saturating_add(1);
                if depth < LEVELS_INDEXED_MAXIMUM {
                    self.insert(&Trait::Level(depth, level), id.0);
                }
            }
            self.insert(&Trait::Count(count), id.0);
            self.seen = self.seen.saturating_add(1);
            *effort = effort.saturating_add(wide(count.min(LEVELS_INDEXED_MAXIMUM)));
            if *effort >= until {
                break;
            }
        }
        self.seen >= names
    }

    /// The topics that `filter` may match, no more than have each of its literal levels; `None` if it has no literal
    /// level behind a wildcard: then walking over the names is quicker.
    pub fn candidates(&self, filter: &[u8]) -> Option<RoaringBitmap> {
        let levels: Vec<&[u8]> = filter.split(|byte| *byte == b'/').collect();
        let is_wildcard = |level: &&[u8]| *level == b"+" || *level == b"#";
        let first_wildcard = levels.iter().position(is_wildcard)?;
        let behind = levels.iter().take(LEVELS_INDEXED_MAXIMUM).skip(first_wildcard);
        if behind.clone().all(is_wildcard) {
            return None;
        }
        let literal = levels.iter().enumerate().take(LEVELS_INDEXED_MAXIMUM).filter(|(_, level)| !is_wildcard(level));
        let mut traits: Vec<Trait> = literal.map(|(depth, level)| Trait::Level(depth, level)).collect();
        if levels.last() != Some(&b"#".as_slice()) {
            traits.push(Trait::Count(levels.len()));
        }
        let mut sets = Vec::with_capacity(traits.len());
        for about in &traits {
            // What no topic has, no filter that asks for it matches.
            let Some((_, set)) = self.sets.get(&self.hasher.hash_one(about)) else { return Some(RoaringBitmap::new()) };
            sets.push(set);
        }
        sets.sort_by_key(|set| set.len());
        let mut found: Option<RoaringBitmap> = None;
        for set in sets {
            found = Some(match (found, set) {
                (None, Set::One(id)) => RoaringBitmap::from_iter([*id]),
                (None, Set::Many(ids)) => ids.as_ref().clone(),
                (Some(found), Set::One(id)) => found.into_iter().filter(|known| known == id).collect(),
                (Some(found), Set::Many(ids)) => found & ids.as_ref(),
            });
        }
        found
    }

    fn insert(&mut self, about: &Trait<'_>, id: u32) {
        let key = self.hasher.hash_one(about);
        let Some(set) = self.sets.get_or_insert(key, || Set::One(id)) else { return };
        match set {
            Set::One(known) if *known == id => {}
            Set::One(known) => *set = Set::Many(Box::new(RoaringBitmap::from_iter([*known, id]))),
            Set::Many(ids) => {
                ids.insert(id);
            }
        }
    }
}

impl Set {
    fn len(&self) -> u64 {
        match self {
            Set::One(_) => 1,
            Set::Many(ids) => ids.len(),
        }
    }
}
