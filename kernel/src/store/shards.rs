//! A hash map that grows a part at a time: making room for a million names at one go would take a tenth of a second.
//!
//! Invariants:
//! 1. A key is in the shard that its hash names, so that no entry moves but within one shard that grows.
//! 2. No two shards get the same part of the keys, from one part to nearly two: else all would grow at the same time.

use ahash::RandomState;
use hashbrown::HashTable;
use std::borrow::Borrow;
use std::hash::Hash;

/// With a million entries each has 5 000 to 10 000, which move in less than a millisecond.
const SHARDS: u8 = 128;

/// Values by key.
#[derive(Debug)]
pub(super) struct Shards<Key, Value> {
    tables: Vec<HashTable<(Key, Value)>>,
    /// Shards by hash, each as often as is its part.
    places: Vec<u8>,
    hasher: RandomState,
}

impl<Key: Hash + Eq, Value> Shards<Key, Value> {
    /// An empty map. `seed` keeps clients from choosing keys that collide.
    pub fn new(seed: u64, salt: u64) -> Shards<Key, Value> {
        let tables = (0..SHARDS).map(|_| HashTable::new()).collect();
        let parts = |shard: u8| std::iter::repeat_n(shard, usize::from(SHARDS).saturating_add(shard.into()));
        let places = (0..SHARDS).flat_map(parts).collect();
        Shards { tables, places, hasher: RandomState::with_seeds(seed, salt, 91, 92) }
    }

    /// The value of a key, with the key as it is kept.
    pub fn get<Asked>(&self, key: &Asked) -> Option<&(Key, Value)>
    where
        Key: Borrow<Asked>,
        Asked: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        self.tables.get(self.place(hash))?.find(hash, |(known, _)| known.borrow() == key)
    }

    /// The value of a key; what `new` makes where it has none.
    pub fn get_or_insert(&mut self, key: Key, new: impl FnOnce() -> Value) -> Option<&mut Value> {
        let (hash, hasher) = (self.hasher.hash_one(&key), &self.hasher);
        let place = self.place(hash);
        let table = self.tables.get_mut(place)?;
        let entry = table.entry(hash, |(known, _)| *known == key, |(known, _)| hasher.hash_one(known));
        Some(&mut entry.or_insert_with(|| (key, new())).into_mut().1)
    }

    /// By bits of the hash that the tables do not use.
    fn place(&self, hash: u64) -> usize {
        let bits = usize::try_from(hash >> 24 & 0xffff_ffff).unwrap_or_default();
        let place = bits.checked_rem(self.places.len()).and_then(|at| self.places.get(at));
        place.copied().unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_was_put_in_is_found_and_few_shards_grow_at_a_time() {
        let mut shards: Shards<Arc<[u8]>, u32> = Shards::new(1, 2);
        let name = |number: u32| format!("site/{number}").into_bytes();
        let (mut moved, mut most) = (0, 0);
        for number in 0..100_000 {
            let key: Arc<[u8]> = name(number).into();
            let place = shards.place(shards.hasher.hash_one(&key));
            let before = shards.tables[place].capacity();
            shards.get_or_insert(key, || number).unwrap();
            let table = &shards.tables[place];
            moved += if table.capacity() > before { table.len() } else { 0 };
            if number % 1_000 == 999 {
                (most, moved) = (most.max(moved), 0);
            }
        }
        assert!((0..100_000).all(|number| shards.get(name(number).as_slice()).unwrap().1 == number));
        assert!(shards.get(b"site/100000".as_slice()).is_none());
        // While a thousand names are put in no more than a few thousand move, where one map would move half of them.
        assert!(most < 8_000, "{most}");
    }
}
