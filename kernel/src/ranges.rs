//! Sets of positions as ranges: what is acknowledged above a mark, which messages of a batch are done.
//!
//! Owns: disjoint ranges and their encoding. Never: knows what a position means.
//!
//! Invariants:
//! 1. Ranges are half-open, not empty, disjoint and not adjacent: equal sets have equal ranges and equal bytes.
//! 2. `decode` takes what `encode` writes and refuses everything else; it allocates no more than the input is long.
//!
//! A `BTreeMap` from start to end keeps every operation logarithmic, also where a consumer that acknowledges one
//! message in two leaves a hundred thousand gaps; while all goes in order the set is empty and owns no memory.

use crate::error::{Error, Result};
use crate::varint::{put, Reader};
use std::collections::BTreeMap;

/// A set of `u64` as disjoint, coalesced, half-open ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end (exclusive).
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds `start..end`; an empty range adds nothing.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let before = self.ranges.range(..=start).next_back();
        let (start, mut end) = match before {
            Some((_, before_end)) if *before_end >= end => return,
            Some((before, before_end)) if *before_end >= start => (*before, end),
            _ => (start, end),
        };
        while let Some((&next, &next_end)) = self.ranges.range(start.saturating_add(1)..=end).next() {
            self.ranges.remove(&next);
            end = end.max(next_end);
        }
        self.ranges.insert(start, end);
    }

    /// Removes every position below `position`.
    pub fn remove_below(&mut self, position: u64) {
        while let Some(entry) = self.ranges.first_entry() {
            if *entry.key() >= position {
                return;
            }
            let end = entry.remove();
            if end > position {
                self.ranges.insert(position, end);
            }
        }
    }

    /// True if `position` is in the set.
    pub fn contains(&self, position: u64) -> bool {
        self.ranges.range(..=position).next_back().is_some_and(|(_, end)| position < *end)
    }

    /// True if all of `start..end` is in the set; an empty range is.
    pub fn contains_range(&self, start: u64, end: u64) -> bool {
        start >= end || self.ranges.range(..=start).next_back().is_some_and(|(_, held)| end <= *held)
    }

    /// The parts of `start..end` that are not in the set.
    pub fn gaps(&self, start: u64, end: u64) -> RangeSet {
        let mut gaps = RangeSet::new();
        let mut from = self.ranges.range(..=start).next_back().map_or(start, |(_, held)| start.max(*held));
        for (&next, &next_end) in self.ranges.range(start.saturating_add(1)..end.max(start.saturating_add(1))) {
            gaps.insert(from, next);
            from = next_end;
        }
        gaps.insert(from, end);
        gaps
    }

    /// The first position from `position` on that is not in the set.
    pub fn first_gap(&self, position: u64) -> u64 {
        let before = self.ranges.range(..=position).next_back();
        before.map_or(position, |(_, end)| position.max(*end))
    }

    /// The lowest range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ranges.first_key_value().map(|(start, end)| (*start, *end))
    }

    /// All ranges in order, as (start, end).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of positions in the set.
    pub fn positions(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    /// Appends the set to `bytes`: the number of ranges, then for each the distance from the end of the one before
    /// (from 0 for the first) and its size, all as little-endian base-128 integers.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, u64::try_from(self.ranges.len()).unwrap_or(u64::MAX));
        let mut previous = 0;
        for (start, end) in self.iter() {
            put(bytes, start - previous);
            put(bytes, end - start);
            previous = end;
        }
    }

    /// Reads a set from the start of `bytes`; returns it and the bytes after it.
    pub fn decode(bytes: &[u8]) -> Result<(RangeSet, &[u8])> {
        let mut reader = Reader::new(bytes);
        let mut next = || reader.next().map_err(|error| malformed(&error.to_string()));
        let count = next()?;
        let mut ranges = BTreeMap::new();
        let mut previous = 0u64;
        for index in 0..count {
            let (distance, size) = (next()?, next()?);
            if size == 0 || (distance == 0 && index > 0) {
                return Err(malformed("ranges that touch or are empty"));
            }
            let start = previous.checked_add(distance).ok_or_else(|| malformed("a range past the last position"))?;
            previous = start.checked_add(size).ok_or_else(|| malformed("a range past the last position"))?;
            ranges.insert(start, previous);
        }
        Ok((RangeSet { ranges }, reader.rest()))
    }
}

impl FromIterator<(u64, u64)> for RangeSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in ranges {
            set.insert(start, end);
        }
        set
    }
}

fn malformed(what: &str) -> Error {
    Error::Invalid(format!("a set of ranges has {what}"))
}
