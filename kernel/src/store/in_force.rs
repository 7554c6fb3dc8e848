//! Which control record has the newest value of each key: retention keeps those.
//!
//! Bounded by the number of live keys: about 100 bytes each. The keys themselves are kept and not hashes of them,
//! because a client that found two keys with one hash could make the log forget one. They are kept in order, so that a
//! walk in pieces finds its place again.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The number of the newest control record of each live key.
#[derive(Debug, Default)]
pub struct InForce {
    numbers: BTreeMap<Box<[u8]>, u64>,
    /// The key that is looked up: retention asks for hundreds of thousands.
    sought: Vec<u8>,
}

impl InForce {
    /// Record `number` has the newest value of the key; an empty value removes the key.
    pub fn apply(&mut self, table: u32, key: &[u8], value: &[u8], number: u64) {
        self.seek(table, key);
        let key = self.sought.as_slice();
        if value.is_empty() {
            self.numbers.remove(key);
        } else if let Some(known) = self.numbers.get_mut(key) {
            *known = number;
        } else {
            self.numbers.insert(key.into(), number);
        }
    }

    /// True if record `number` has the newest value of the key.
    pub fn is(&mut self, table: u32, key: &[u8], number: u64) -> bool {
        self.seek(table, key);
        self.numbers.get(self.sought.as_slice()) == Some(&number)
    }

    /// Sets a number, as a checkpoint has it.
    pub fn insert(&mut self, full_key: &[u8], number: u64) {
        self.numbers.insert(full_key.into(), number);
    }

    /// The keys (table first) behind one, or all of them, with their numbers.
    pub fn after(&self, key: Option<&[u8]>) -> impl Iterator<Item = (&[u8], u64)> + '_ {
        let first = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.numbers.range::<[u8], _>((first, Bound::Unbounded)).map(|(key, number)| (key.as_ref(), *number))
    }

    /// How many keys have a value.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    fn seek(&mut self, table: u32, key: &[u8]) {
        self.sought.clear();
        self.sought.extend_from_slice(&table.to_le_bytes());
        self.sought.extend_from_slice(key);
    }
}
