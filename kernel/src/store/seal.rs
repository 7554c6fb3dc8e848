//! The footer of a segment that takes no more records.
//!
//! Owns: what a footer is made of, and the steps of writing it beside the loop. A footer of many topics is megabytes: a
//! commit that wrote it would keep everybody waiting who is owed an acknowledgement (docs/adr/0033-footers-wait.md).
//! Until it is there the index stays in memory, and a start reads the records themselves.

use super::dictionary::{Dictionary, Topic};
use super::encoding::wide;
use super::footer::{self, Trailer};
use super::index::SegmentIndex;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::ids::{LogPosition, TopicId};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is to be written behind the last record of a segment.
pub(super) struct Seal {
    /// The segment's number.
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) records_end: u32,
    pub(super) end_position: LogPosition,
    pub(super) index: Arc<SegmentIndex>,
}

impl Seal {
    /// All topics of the segment.
    pub(super) fn topics(&self) -> impl Iterator<Item = TopicId> + use<'_> {
        self.index.topics.keys().copied().map(TopicId)
    }

    fn footer(&self, names: &[(TopicId, Arc<[u8]>)]) -> (Vec<u8>, Trailer) {
        footer::encode(self.number, self.records_end, self.end_position, &self.index, names)
    }

    /// Writes the footer as a whole, without a sync.
    pub(super) fn write(&self, names: &[(TopicId, Arc<[u8]>)]) -> Result<Trailer> {
        let (bytes, trailer) = self.footer(names);
        let start = u64::from(self.records_end);
        self.file.write_at(start, &bytes)?;
        self.file.truncate(start.saturating_add(wide(bytes.len())))?;
        Ok(trailer)
    }
}

/// What one step writes and syncs. A commit that comes meanwhile waits for that, a fraction of a millisecond.
const STEP_BYTES: usize = 262_144;

/// Segments whose footers are not on their way yet, oldest first.
#[derive(Default)]
pub(super) struct Unsealed {
    seals: VecDeque<Seal>,
    /// Topics of the first of them whose names are to be looked up, and those that have been.
    topics: Option<Vec<TopicId>>,
    names: Vec<(TopicId, Arc<[u8]>)>,
}

impl Unsealed {
    pub(super) fn add(&mut self, seal: Seal) {
        self.seals.push_back(seal);
    }

    /// The footer of this one could not be written: it comes next again.
    pub(super) fn put_back(&mut self, write: SealWrite) {
        (self.topics, self.names) = (None, Vec::new());
        self.seals.push_front(write.seal);
    }

    /// The first one, if there are more than so many: for a commit that writes its footer.
    pub(super) fn take_beyond(&mut self, maximum: usize) -> Option<Seal> {
        if self.seals.len() <= maximum {
            return None;
        }
        (self.topics, self.names) = (None, Vec::new());
        self.seals.pop_front()
    }

    /// The first one, if what comes behind it is durable.
    pub(super) fn first(&self, durable: LogPosition) -> Option<&Seal> {
        ready(&self.seals, durable)
    }

    /// Looks up some more names of that one, about so many. True once its footer can be written, or there is none.
    pub(super) fn prepare(&mut self, durable: LogPosition, dictionary: &Dictionary, count: usize) -> bool {
        let Some(seal) = ready(&self.seals, durable) else { return true };
        let topics = self.topics.get_or_insert_with(|| seal.topics().collect());
        let some = topics.split_off(topics.len().saturating_sub(count));
        self.names.extend(names_of(some.into_iter(), |topic| dictionary.get(topic)));
        topics.is_empty()
    }

    /// The first one with its names, once it is prepared.
    pub(super) fn take(&mut self) -> Option<SealWrite> {
        self.topics.take_if(|topics| topics.is_empty())?;
        let names = std::mem::take(&mut self.names);
        self.seals.pop_front().map(|seal| SealWrite { seal, names, footer: None, written: 0 })
    }
}

fn ready(seals: &VecDeque<Seal>, durable: LogPosition) -> Option<&Seal> {
    seals.front().filter(|seal| seal.end_position < durable)
}

/// A footer that is written beside the loop. Each step writes and syncs a little, so that a large one does not hold up
/// the sync of a commit.
pub(super) struct SealWrite {
    seal: Seal,
    names: Vec<(TopicId, Arc<[u8]>)>,
    footer: Option<(Vec<u8>, Trailer)>,
    written: usize,
}

impl SealWrite {
    /// Writes and syncs some more; true while there is more to write. The file has its length, and so a trailer that is
    /// found, with the last of it.
    pub(super) fn step(&mut self) -> Result<bool> {
        let (seal, names) = (&self.seal, &self.names);
        let (bytes, _) = self.footer.get_or_insert_with(|| seal.footer(names));
        let end = self.written.saturating_add(STEP_BYTES).min(bytes.len());
        let part = bytes.get(self.written..end).unwrap_or_default();
        seal.file.write_at(u64::from(seal.records_end).saturating_add(wide(self.written)), part)?;
        if end == bytes.len() {
            seal.file.truncate(u64::from(seal.records_end).saturating_add(wide(end)))?;
        }
        seal.file.sync()?;
        self.written = end;
        Ok(end < bytes.len())
    }

    /// The segment's number, and the trailer of a footer that is whole.
    pub(super) fn outcome(&self) -> (u32, Option<Trailer>) {
        (self.seal.number, self.footer.as_ref().map(|(_, trailer)| *trailer))
    }
}

/// The names of topics; topic 0 has none.
pub(super) fn names_of<'a>(
    topics: impl Iterator<Item = TopicId>,
    topic: impl Fn(TopicId) -> Option<&'a Topic>,
) -> impl Iterator<Item = (TopicId, Arc<[u8]>)> {
    topics.map(move |id| (id, topic(id).and_then(|topic| topic.name.clone()).unwrap_or_default()))
}
