//! A part of one segment that a question is about, and how far it has been looked at.

use super::filters::Tally;
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

/// How far one segment has been looked at. Another segment begins with none of it.
#[derive(Default)]
pub(super) struct Part {
    pub segment: Option<u32>,
    /// Topic by topic, because what is remembered does not answer.
    pub is_walk: bool,
    /// The set that is added up next, what those before it have, and what has been found of it.
    pub set: usize,
    pub sum: Tally,
    pub tally: Tally,
    /// The next topic, and the next position of it.
    pub topic: u32,
    pub position: u32,
    /// Where offsets lie that ranges of topics begin or end with.
    pub places: Vec<(Offset, u32)>,
    pub total: u64,
    pub positions: Vec<u32>,
    /// Positions of records with several messages, and how many of them count.
    pub entries: Vec<(u32, u64)>,
}
