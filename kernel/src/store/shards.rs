//! A hash map that grows a part at a time: making room for a million names at one go would take a tenth of a second.
//!
//! Invariants:
//! 1. A key is in the shard that its hash names, so that no entry moves but within one shard that grows.
//! 2. No two shards get the same part of the keys, from one part to nearly two: else all would grow at the same time.

use ahash::RandomState;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// With a million entries each has 5 000 to 10 000, which move in less than a millisecond.
const SHARDS: u8 = 128;

/// Values by key.
#[derive(Debug)]
pub(super) struct Shards<Key, Value> {
    maps: Vec<HashMap<Key, Value, RandomState>>,
    /// Shards by hash, each as often as is its part.
    places: Vec<u8>,
    hasher: RandomState,
}

impl<Key: Hash + Eq, Value> Shards<Key, Value> {
    /// An empty map. `seed` keeps clients from choosing keys that collide.
    pub fn new(seed: u64, salt: u64) -> Shards<Key, Value> {
        let map = || HashMap::with_hasher(RandomState::with_seeds(seed, salt, 91, 92));
        let maps = (0..SHARDS).map(|_| map()).collect();
        let parts = |shard: u8| std::iter::repeat_n(shard, usize::from(SHARDS).saturating_add(shard.into()));
        Shards {
            maps,
            places: (0..SHARDS).flat_map(parts).collect(),
            hasher: RandomState::with_seeds(seed, salt, 93, 94),
        }
    }

    /// The value of a key, with the key as it is kept.
    pub fn get_key_value<Asked>(&self, key: &Asked) -> Option<(&Key, &Value)>
    where
        Key: Borrow<Asked>,
        Asked: Hash + Eq + ?Sized,
    {
        self.maps.get(self.place(key))?.get_key_value(key)
    }

    /// The value of a key.
    pub fn get<Asked>(&self, key: &Asked) -> Option<&Value>
    where
        Key: Borrow<Asked>,
        Asked: Hash + Eq + ?Sized,
    {
        self.maps.get(self.place(key))?.get(key)
    }

    /// The map that has the key, or is to have it.
    pub fn of(&mut self, key: &Key) -> Option<&mut HashMap<Key, Value, RandomState>> {
        let place = self.place(key);
        self.maps.get_mut(place)
    }

    fn place<Asked: Hash + ?Sized>(&self, key: &Asked) -> usize {
        let hash = usize::try_from(self.hasher.hash_one(key)).unwrap_or_default();
        let place = hash.checked_rem(self.places.len()).and_then(|at| self.places.get(at));
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
            let map = shards.of(&key).unwrap();
            let before = map.capacity();
            map.insert(key, number);
            moved += if map.capacity() > before { map.len() } else { 0 };
            if number % 1_000 == 999 {
                (most, moved) = (most.max(moved), 0);
            }
        }
        assert!((0..100_000).all(|number| shards.get(name(number).as_slice()) == Some(&number)));
        assert_eq!(shards.get(b"site/100000".as_slice()), None);
        // While a thousand names are put in no more than a few thousand move, where one map would move half of them.
        assert!(most < 8_000, "{most}");
    }
}
