//! Which control record has the newest value of each key: retention keeps those.
//!
//! Bounded by the number of live keys: about 100 bytes each. The keys themselves are kept and not hashes of them,
//! because a client that found two keys with one hash could make the log forget one.

use ahash::RandomState;
use std::collections::HashMap;

/// The number of the newest control record of each live key.
#[derive(Debug)]
pub struct InForce {
    numbers: HashMap<Box<[u8]>, u64, RandomState>,
}

impl InForce {
    /// No key has a value.
    pub fn new(seed: u64) -> InForce {
        InForce { numbers: HashMap::with_hasher(RandomState::with_seeds(seed, 41, 42, 43)) }
    }

    /// Record `number` has the newest value of the key; an empty value removes the key.
    pub fn apply(&mut self, table: u32, key: &[u8], value: &[u8], number: u64) {
        let key = full_key(table, key);
        if value.is_empty() {
            self.numbers.remove(&key);
        } else {
            self.numbers.insert(key, number);
        }
    }

    /// True if record `number` has the newest value of the key.
    pub fn is(&self, table: u32, key: &[u8], number: u64) -> bool {
        self.numbers.get(&full_key(table, key)) == Some(&number)
    }

    /// Sets a number, as a checkpoint has it.
    pub fn insert(&mut self, full_key: &[u8], number: u64) {
        self.numbers.insert(full_key.into(), number);
    }

    /// All keys (table first) with their numbers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> + '_ {
        self.numbers.iter().map(|(key, number)| (key.as_ref(), *number))
    }

    /// How many keys have a value.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}

fn full_key(table: u32, key: &[u8]) -> Box<[u8]> {
    let mut full = Vec::with_capacity(key.len().saturating_add(4));
    full.extend_from_slice(&table.to_le_bytes());
    full.extend_from_slice(key);
    full.into()
}
