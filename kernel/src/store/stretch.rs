//! A part of one segment that a question is about.

use super::record::Record;
use crate::ids::Offset;

/// A segment, as far as it is asked about.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub place: usize,
    pub number: u32,
    pub first: Offset,
    pub end: Offset,
    /// All of a sealed segment lies within.
    pub is_whole: bool,
}

impl Stretch {
    /// How many messages of a record lie in it.
    pub fn messages_of(&self, record: &Record<'_>) -> u64 {
        let (first, end) = (record.offset.max(self.first), record.end().min(self.end));
        end.0.saturating_sub(first.0)
    }
}
