//! Values that only save work, bounded by their bytes: the least recently used go first.

use lru::LruCache;
use std::hash::Hash;

/// Values by key.
pub(super) struct Cache<Key: Hash + Eq, Value> {
    values: LruCache<Key, (Value, usize), ahash::RandomState>,
    bytes: usize,
    limit: usize,
}

impl<Key: Hash + Eq, Value> Cache<Key, Value> {
    /// An empty cache. `seed` keeps clients from choosing keys that collide.
    pub fn new(limit: usize, seed: u64) -> Cache<Key, Value> {
        let hasher = ahash::RandomState::with_seeds(seed, 71, 72, 73);
        Cache { values: LruCache::unbounded_with_hasher(hasher), bytes: 0, limit }
    }

    /// What all values together take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The value of a key, which is used now.
    pub fn get<Asked>(&mut self, key: &Asked) -> Option<&mut Value>
    where
        Key: std::borrow::Borrow<Asked>,
        Asked: Hash + Eq + ?Sized,
    {
        self.values.get_mut(key).map(|(value, _)| value)
    }

    /// Keeps a value of so many bytes, and forgets others where there are too many.
    pub fn put(&mut self, key: Key, value: Value, size: usize) {
        self.bytes = self.bytes.saturating_add(size);
        if let Some((_, old)) = self.values.put(key, (value, size)) {
            self.bytes = self.bytes.saturating_sub(old);
        }
        while self.bytes > self.limit && self.values.len() > 1 {
            let Some((_, (_, old))) = self.values.pop_lru() else { break };
            self.bytes = self.bytes.saturating_sub(old);
        }
    }

    /// Takes a value out.
    pub fn remove<Asked>(&mut self, key: &Asked) -> Option<Value>
    where
        Key: std::borrow::Borrow<Asked>,
        Asked: Hash + Eq + ?Sized,
    {
        let (value, size) = self.values.pop(key)?;
        self.bytes = self.bytes.saturating_sub(size);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_the_newest_stays_however_large() {
        let mut cache = Cache::new(10, 1);
        cache.put(1, "one", 4);
        cache.put(2, "two", 4);
        assert!(cache.get(&1).is_some());
        cache.put(3, "three", 4);
        assert!(cache.get(&2).is_none() && cache.get(&1).is_some());
        cache.put(4, "four", 100);
        assert!(cache.get(&1).is_none() && cache.get(&4).is_some());
        assert_eq!(cache.remove(&4), Some("four"));
        assert_eq!(cache.bytes, 0);
    }
}
