//! The segments of a log, and how a record in any of them is read: from the tail in memory, else through the block
//! cache. The log and its readers elsewhere both stand on this.
//!
//! Invariants:
//! 1. Segments lie in offset order: carry segments first, then the log's own; their ranges do not overlap.
//! 2. No damaged record is ever returned: every record read from the disk passes its checksum first.
//! 3. A damaged footer costs nothing but time: what it said is found out from the records again, once.

use super::blocks::Blocks;
use super::cache::Cache;
use super::encoding::{narrow, wide};
use super::filters::Topics;
use super::footer::{self, Directory, TopicEntry};
use super::header::{SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::{between, mark_before, Class, Mark, SegmentIndex};
use super::record::{self, Record};
use super::replay::{self, Pages};
use super::segment::{Indexed, Segment};
use super::tail::Tail;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::ids::{Location, Offset, Party, Timestamp, TopicId};
use crate::limits::{DIRECTORY_CACHE_BYTES, POSTINGS_CACHE_BYTES, SEGMENT_TOPICS_CACHE_BYTES};
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Bytes of a footer that are read and checked with the effort of one look.
const DIRECTORY_BYTES_PER_EFFORT: u64 = 256;

/// What looking up one of many topics takes.
const EFFORT_PER_TOPIC: u64 = 2;

/// From so many topics on the postings of a segment are read at once.
pub const MANY_TOPICS: u64 = 32;

/// What reading a block from the disk costs, in looks: where the system has it in memory it takes some 20 us.
const BLOCK_EFFORT: u64 = 200;

/// Bytes of a record that are checked with the effort of one look.
const RECORD_BYTES_PER_EFFORT: u64 = 1_024;

/// All segments.
pub struct Archive {
    /// Where they are.
    pub disk: Arc<dyn Disk>,
    /// The salt of every record's checksum.
    pub salt: u32,
    /// In offset order.
    pub segments: Vec<Segment>,
    /// The newest bytes.
    pub tail: Tail,
    /// Bytes read from the disk.
    pub blocks: Blocks,
    /// Places that were to hold a record and did not.
    pub damaged_reads: u64,
    /// Records looked at and topics looked up or compared, in all calls: what a piece of work is measured by.
    pub effort: u64,
    directories: Cache<u32, Arc<Directory>>,
    /// Of each segment the topics with messages of class [`Class::Queued`].
    queued_topics: Cache<u32, Topics>,
    /// Postings of whole segments, for whoever asks for many topics.
    postings: Cache<u32, Arc<Vec<u8>>>,
}

impl Archive {
    /// No segments yet.
    pub fn new(disk: Arc<dyn Disk>, salt: u32, cache_bytes: usize) -> Archive {
        Archive {
            disk,
            salt,
            segments: Vec::new(),
            tail: Tail::default(),
            blocks: Blocks::new(cache_bytes),
            damaged_reads: 0,
            effort: 0,
            directories: Cache::new(DIRECTORY_CACHE_BYTES, 0),
            queued_topics: Cache::new(SEGMENT_TOPICS_CACHE_BYTES, 0),
            postings: Cache::new(POSTINGS_CACHE_BYTES, 0),
        }
    }

    /// Bytes of what is remembered, by what it is.
    pub fn remembered(&self) -> [(&'static str, usize); 4] {
        [
            ("blocks", self.blocks.bytes()),
            ("directories", self.directories.bytes()),
            ("segment_topics", self.queued_topics.bytes()),
            ("postings", self.postings.bytes()),
        ]
    }

    /// The segment with a number.
    pub fn find(&self, number: u32) -> Option<usize> {
        // Most of what is looked up was appended just now.
        if self.segments.last().is_some_and(|last| last.header.number == number) {
            return self.segments.len().checked_sub(1);
        }
        // Numbers grow with offsets among the log's own segments and among carry segments, so two searches do.
        let carries = self.segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let own = self.segments.get(carries..)?.partition_point(|segment| segment.header.number < number);
        let place = carries.saturating_add(own);
        if self.segments.get(place).is_some_and(|segment| segment.header.number == number) {
            return Some(place);
        }
        self.segments.iter().take(carries).position(|segment| segment.header.number == number)
    }

    /// The first segment that covers `offset` or something after it.
    pub fn first_from(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.end_offset() <= offset)
    }

    /// The record at a position of a segment (by its place in the order); `None` where there is no whole record.
    pub fn record(&mut self, place: usize, position: u32) -> Result<Option<Record<'_>>> {
        let Some(segment) = self.segments.get(place) else { return Ok(None) };
        let number = segment.header.number;
        if position >= segment.end {
            return Ok(None);
        }
        self.effort = self.effort.wrapping_add(1);
        // Carry segments have numbers among the others and are never in the tail.
        let start = if segment.header.kind == SegmentKind::Log { self.tail.start() } else { (u32::MAX, 0) };
        let found = if (number, position) >= start {
            self.tail.slice(number, position).and_then(record::read)
        } else {
            let on_disk = if start.0 == number { start.1 } else { segment.end };
            if self.blocks.hold(segment.file.as_ref(), number, position, on_disk)? {
                self.effort = self.effort.wrapping_add(BLOCK_EFFORT);
            }
            record::decode(self.blocks.record(segment.file.as_ref(), position, on_disk)?, self.salt)
        };
        if let Some(record) = &found {
            self.effort = self.effort.wrapping_add(wide(record.size_bytes()) / RECORD_BYTES_PER_EFFORT);
        } else {
            self.damaged_reads = self.damaged_reads.saturating_add(1);
        }
        Ok(found)
    }

    /// The record at a location; `None` if it is gone.
    pub fn record_at(&mut self, location: Location) -> Result<Option<Record<'_>>> {
        match self.find(location.segment) {
            Some(place) => self.record(place, location.position),
            None => Ok(None),
        }
    }

    /// True if to some queue a position of the segment is not one message.
    pub fn is_uneven(&self, place: usize) -> bool {
        self.segments.get(place).is_some_and(|segment| match &segment.index {
            Indexed::Open(index) => index.is_uneven,
            Indexed::Closed(index) => index.is_uneven,
            Indexed::Sealed(trailer) => trailer.is_uneven,
        })
    }

    /// What the segment has of a topic.
    pub fn topic(&mut self, place: usize, topic: TopicId) -> Result<Option<TopicCounts>> {
        self.effort = self.effort.wrapping_add(1);
        self.mended(place, |archive| match archive.segments.get(place).map(|segment| &segment.index) {
            Some(Indexed::Open(index)) => Ok(counts(index, topic)),
            Some(Indexed::Closed(index)) => Ok(counts(index, topic)),
            Some(Indexed::Sealed(_)) => {
                let entry = archive.directory(place)?.and_then(|directory| directory.entry(topic));
                Ok(entry.map(|entry| TopicCounts {
                    queued: entry.queued,
                    plain_messages: entry.plain_messages,
                    queued_messages: entry.queued_messages,
                    kept_messages: entry.kept_messages,
                    bytes: entry.bytes,
                    expires_s: entry.expires_s,
                    entry: Some(entry),
                }))
            }
            None => Ok(None),
        })
    }

    /// Appends the positions of a topic's records of one class in `low..high` to `into`.
    pub fn positions(
        &mut self,
        place: usize,
        topic: TopicId,
        class: Class,
        low: u32,
        high: u32,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        self.mended(place, |archive| {
            let Some(found) = archive.topic(place, topic)? else { return Ok(()) };
            let Some(segment) = archive.segments.get(place) else { return Ok(()) };
            match (&segment.index, &found.entry) {
                (Indexed::Open(index), _) => into.extend_from_slice(between(index.positions(topic, class), low, high)),
                (Indexed::Closed(index), _) => {
                    into.extend_from_slice(between(index.positions(topic, class), low, high))
                }
                (Indexed::Sealed(_), Some(entry)) => {
                    let positions = archive.postings_of(place, entry, class)?;
                    into.extend_from_slice(between(&positions, low, high));
                }
                (Indexed::Sealed(_), None) => {}
            }
            Ok(())
        })
    }

    /// Where in a segment the record starts that has the message with `offset`, or the first one behind it; the end if
    /// there is none.
    pub fn position_of(&mut self, place: usize, offset: Offset) -> Result<u32> {
        let start = self.mark_before(place, offset)?;
        self.walk_to(place, start, |record| record.end() > offset)
    }

    /// The last position known to the index from which reading on comes to a message with this offset.
    fn mark_before(&mut self, place: usize, offset: Offset) -> Result<u32> {
        let Some(segment) = self.segments.get(place) else { return Ok(0) };
        if offset >= segment.end_offset() {
            return Ok(segment.end);
        }
        // Before the segment's first message there may be as many control records as it holds.
        let mark = match &segment.index {
            Indexed::Open(index) => mark_before(&index.marks, offset),
            Indexed::Closed(_) | Indexed::Sealed(_) => mark_before(self.marks(place)?.as_slice(), offset),
        };
        Ok(mark.map_or(SEGMENT_HEADER_BYTES, |mark| mark.position))
    }

    /// Where the record with exactly this message is; `None` if it is gone or damaged. `last` is the location of one
    /// with a smaller offset, where the caller knows one: from there to a message close behind it is a short walk.
    pub fn find_message(&mut self, offset: Offset, last: Option<Location>) -> Result<Option<Location>> {
        let place = self.first_from(offset);
        let mut start = self.mark_before(place, offset)?;
        if let Some(last) = last.filter(|last| self.find(last.segment) == Some(place)) {
            start = start.max(last.position);
        }
        let position = self.walk_to(place, start, |record| record.end() > offset)?;
        let Some(segment) = self.segments.get(place).map(|segment| segment.header.number) else { return Ok(None) };
        let found = self.record(place, position)?.is_some_and(|record| record.offset <= offset);
        Ok(found.then_some(Location { segment, position }))
    }

    /// How many messages of a party there are from an offset on.
    pub fn published(&mut self, party: Party, from: Offset) -> Result<u64> {
        let mut count = 0_u64;
        for place in self.first_from(from)..self.segments.len() {
            let start = self.position_of(place, from)?;
            self.walk_to(place, start, |record| {
                let is_of_party = record.kind.has_messages() && record.publisher == party;
                count += if is_of_party { record.end().0.saturating_sub(record.offset.0.max(from.0)) } else { 0 };
                false
            })?;
        }
        Ok(count)
    }

    /// The position of the first record from `start` on for which `is_wanted`; the end if there is none.
    pub fn walk_to(&mut self, place: usize, start: u32, mut is_wanted: impl FnMut(&Record<'_>) -> bool) -> Result<u32> {
        let end = self.segments.get(place).map_or(0, |segment| segment.end);
        let mut position = start;
        while position < end {
            match self.record(place, position)? {
                Some(record) if is_wanted(&record) => return Ok(position),
                Some(record) => position = position.saturating_add(narrow(record.size_bytes())),
                None => position = self.next_whole(place, position)?,
            }
        }
        Ok(end)
    }

    /// After damage: where the next whole record starts that the index knows of; the end if it knows none.
    pub fn next_whole(&mut self, place: usize, position: u32) -> Result<u32> {
        let end = self.segments.get(place).map_or(0, |segment| segment.end);
        let marks = self.marks(place)?;
        let mut candidates: Vec<u32> = marks.iter().map(|mark| mark.position).filter(|mark| *mark > position).collect();
        for topic in self.topic_ids(place)? {
            for class in [Class::Plain, Class::Queued] {
                let mut positions = Vec::new();
                self.positions(place, topic, class, position.saturating_add(1), end, &mut positions)?;
                candidates.extend(positions.first());
            }
        }
        Ok(candidates.into_iter().min().unwrap_or(end))
    }

    /// The first offset that was appended at `time` or later, if there is one. Walks from one mark to the next at most,
    /// however many control records lie before the next message.
    pub fn offset_at(&mut self, time: Timestamp) -> Result<Option<Offset>> {
        for place in 0..self.segments.len() {
            // A segment that has been begun and has no record yet has no time either: no order to search in by halving.
            if self.segments.get(place).is_none_or(|segment| segment.summary().last_time < time) {
                continue;
            }
            let marks = self.marks(place)?;
            let later = marks.partition_point(|mark| mark.time < time);
            let start = later.checked_sub(1).and_then(|before| marks.get(before));
            let start = start.map_or(SEGMENT_HEADER_BYTES, |mark| mark.position);
            let next = marks.get(later).copied();
            let stop = next.map_or(u32::MAX, |mark| mark.position);
            let mut passed = start;
            let position = self.walk_to(place, start, |record| {
                let is_wanted = record.kind.has_messages() && record.appended_at >= time;
                let is_over = passed >= stop;
                passed = passed.saturating_add(narrow(record.size_bytes()));
                is_wanted || is_over
            })?;
            if let Some(next) = next.filter(|next| position >= next.position) {
                return Ok(Some(next.offset));
            }
            if let Some(record) = self.record(place, position)? {
                return Ok(Some(record.offset));
            }
        }
        Ok(None)
    }

    /// The topics that have records in a segment, by number; topic 0 (control records) included.
    pub fn topic_ids(&mut self, place: usize) -> Result<Vec<TopicId>> {
        self.mended(place, |archive| {
            let mut ids: Vec<TopicId> = match archive.segments.get(place).map(|segment| &segment.index) {
                Some(Indexed::Open(index)) => index.topics.keys().copied().map(TopicId).collect(),
                Some(Indexed::Closed(index)) => index.topics.keys().copied().map(TopicId).collect(),
                Some(Indexed::Sealed(_)) => match archive.directory(place)? {
                    Some(directory) => directory.entries().map(|entry| entry.topic).collect(),
                    None => Vec::new(),
                },
                None => Vec::new(),
            };
            ids.sort_unstable();
            Ok(ids)
        })
    }

    /// The sparse index of a segment.
    pub fn marks(&mut self, place: usize) -> Result<Arc<Vec<Mark>>> {
        self.mended(place, |archive| {
            let Some(segment) = archive.segments.get_mut(place) else { return Ok(Arc::default()) };
            if let Some(marks) = &segment.marks {
                return Ok(Arc::clone(marks));
            }
            let marks = match &segment.index {
                Indexed::Open(index) => return Ok(Arc::new(index.marks.clone())),
                Indexed::Closed(index) => index.marks.clone(),
                Indexed::Sealed(trailer) => footer::read_marks(segment.file.as_ref(), trailer, &segment.name)?,
            };
            let marks = Arc::new(marks);
            segment.marks = Some(Arc::clone(&marks));
            Ok(marks)
        })
    }

    /// The directory of a sealed segment, from memory if it was read lately.
    pub fn directory(&mut self, place: usize) -> Result<Option<Arc<Directory>>> {
        let Some(segment) = self.segments.get(place) else { return Ok(None) };
        let Indexed::Sealed(trailer) = &segment.index else { return Ok(None) };
        let number = segment.header.number;
        if let Some(directory) = self.directories.get(&number) {
            return Ok(Some(Arc::clone(directory)));
        }
        let directory = Arc::new(footer::read_directory(segment.file.as_ref(), trailer, &segment.name)?);
        self.effort = self.effort.saturating_add(wide(directory.size_bytes()) / DIRECTORY_BYTES_PER_EFFORT);
        self.directories.put(number, Arc::clone(&directory), directory.size_bytes());
        Ok(Some(directory))
    }

    /// The topics that have messages of class [`Class::Queued`] in a segment.
    pub fn queued_topics(&mut self, place: usize) -> Result<Topics> {
        self.mended(place, |archive| {
            let number = match archive.segments.get(place) {
                None => return Ok(Topics::default()),
                Some(segment) => match &segment.index {
                    Indexed::Open(index) => return Ok(Arc::new(index.queued_topics.clone())),
                    Indexed::Closed(index) => return Ok(Arc::new(index.queued_topics.clone())),
                    Indexed::Sealed(_) => segment.header.number,
                },
            };
            if let Some(topics) = archive.queued_topics.get(&number) {
                return Ok(Arc::clone(topics));
            }
            let Some(directory) = archive.directory(place)? else { return Ok(Topics::default()) };
            let queued = directory.entries().filter(|entry| entry.queued > 0).map(|entry| entry.topic.0);
            let mut topics = RoaringBitmap::new();
            // Collecting, which looks for the largest topic so far each time, takes four times as long as all of this.
            queued.for_each(|topic| _ = topics.insert(topic));
            let topics = Arc::new(topics);
            archive.effort = archive.effort.saturating_add(wide(directory.size_bytes()) / DIRECTORY_BYTES_PER_EFFORT);
            archive.queued_topics.put(number, Arc::clone(&topics), topics.serialized_size());
            Ok(topics)
        })
    }

    /// Appends the positions of all messages of class [`Class::Queued`] of some topics in `low..high` to `into`, topic
    /// by topic.
    pub fn queued_positions(
        &mut self,
        place: usize,
        topics: &RoaringBitmap,
        low: u32,
        high: u32,
        into: &mut Vec<u32>,
    ) -> Result<()> {
        let before = into.len();
        self.mended(place, |archive| {
            into.truncate(before);
            archive.effort = archive.effort.saturating_add(topics.len().saturating_mul(EFFORT_PER_TOPIC));
            let in_memory = match archive.segments.get(place).map(|segment| &segment.index) {
                Some(Indexed::Open(index)) => Some(index.as_ref()),
                Some(Indexed::Closed(index)) => Some(index.as_ref()),
                Some(Indexed::Sealed(_)) | None => None,
            };
            if let Some(index) = in_memory {
                for topic in topics {
                    into.extend_from_slice(between(index.positions(TopicId(topic), Class::Queued), low, high));
                }
                return Ok(());
            }
            if topics.len() <= MANY_TOPICS {
                let mut topics = topics.iter();
                return topics.try_for_each(|id| archive.positions(place, TopicId(id), Class::Queued, low, high, into));
            }
            archive.load_postings(place)?;
            let (Some(directory), Some(segment)) = (archive.directory(place)?, archive.segments.get(place)) else {
                return Ok(());
            };
            let Some(all) = archive.postings.get(&segment.header.number) else { return Ok(()) };
            for entry in directory.among(topics) {
                footer::queued_among(all, segment.end, &entry, (low, high), &segment.name, into)?;
            }
            Ok(())
        })
    }

    /// Has the postings of all topics of a sealed segment read at once: for whoever is about to ask for many of them.
    pub fn load_postings(&mut self, place: usize) -> Result<()> {
        let Some(segment) = self.segments.get(place) else { return Ok(()) };
        let Indexed::Sealed(trailer) = &segment.index else { return Ok(()) };
        let number = segment.header.number;
        if self.postings.get(&number).is_none() {
            let bytes = footer::read_all_postings(segment.file.as_ref(), trailer)?;
            self.effort = self.effort.saturating_add(wide(bytes.len()) / DIRECTORY_BYTES_PER_EFFORT);
            let size = bytes.len();
            self.postings.put(number, Arc::new(bytes), size);
        }
        Ok(())
    }

    fn postings_of(&mut self, place: usize, entry: &TopicEntry, class: Class) -> Result<Vec<u32>> {
        let Some(segment) = self.segments.get(place) else { return Ok(Vec::new()) };
        let (file, name, end) = (segment.file.as_ref(), &segment.name, segment.end);
        match self.postings.get(&segment.header.number) {
            Some(all) => footer::postings_among(all, end, entry, class, name),
            None => footer::read_postings(file, entry, class, name),
        }
    }

    /// What `read` finds; by an index made anew from the records where it finds that the footer is damaged.
    fn mended<T>(&mut self, place: usize, mut read: impl FnMut(&mut Archive) -> Result<T>) -> Result<T> {
        let found = read(self);
        let Some(segment) = self.segments.get(place) else { return found };
        let (Err(Error::Damaged { .. }), Indexed::Sealed(trailer)) = (&found, &segment.index) else { return found };
        let summary = trailer.summary;
        let pages = Pages::read(segment.file.as_ref(), Some(segment.end), self.salt)?;
        let (mut index, _) = replay::index_of(&pages, &segment.header, self.salt.into());
        index.summary = summary;
        self.damaged_reads = self.damaged_reads.saturating_add(1);
        self.reindex(place, Indexed::Closed(Arc::new(index)));
        read(self)
    }

    /// The segment's index is somewhere else from now on.
    pub fn reindex(&mut self, place: usize, index: Indexed) {
        if let Some(segment) = self.segments.get_mut(place) {
            segment.index = index;
            segment.marks = None;
            let number = segment.header.number;
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u32) {
        self.directories.remove(&number);
        self.queued_topics.remove(&number);
        self.postings.remove(&number);
    }

    /// Takes a segment out of the order; its file stays.
    pub fn remove(&mut self, place: usize) -> Option<Segment> {
        if place >= self.segments.len() {
            return None;
        }
        let segment = self.segments.remove(place);
        self.blocks.forget(segment.header.number);
        self.forget(segment.header.number);
        Some(segment)
    }
}

/// How many records a segment has of a topic.
#[derive(Clone, Copy, Debug)]
pub struct TopicCounts {
    /// Records of class [`Class::Queued`].
    pub queued: u32,
    /// The messages of class [`Class::Plain`].
    pub plain_messages: u32,
    /// The messages of class [`Class::Queued`].
    pub queued_messages: u32,
    /// Those of them that are of QoS 0.
    pub kept_messages: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The second in which the first of class [`Class::Queued`] expires; 0 if none ever does.
    pub expires_s: u32,
    entry: Option<TopicEntry>,
}

impl TopicCounts {
    /// Messages of both classes.
    pub fn messages(&self) -> u64 {
        u64::from(self.plain_messages).saturating_add(u64::from(self.queued_messages))
    }

    /// Messages of class [`Class::Queued`], with those of QoS 0 or without.
    pub fn wanted(&self, keeps_all: bool) -> u64 {
        u64::from(self.queued_messages).saturating_sub(if keeps_all { 0 } else { u64::from(self.kept_messages) })
    }

    /// True if a record of class [`Class::Queued`] may not be one message that a queue wants.
    pub fn is_uneven(&self) -> bool {
        self.queued_messages > self.queued || self.kept_messages > 0
    }

    /// Bytes of its messages of class [`Class::Queued`]: each as many as all of them have on average.
    pub fn queued_bytes(&self, messages: u64) -> u64 {
        let all = self.messages().max(1);
        self.bytes.saturating_mul(messages) / all
    }
}

fn counts(index: &SegmentIndex, topic: TopicId) -> Option<TopicCounts> {
    let postings = index.topics.get(&topic.0)?;
    let queued = narrow(postings.queued.len());
    Some(TopicCounts {
        queued,
        plain_messages: postings.plain_messages,
        queued_messages: postings.queued_messages,
        kept_messages: postings.kept_messages,
        bytes: postings.bytes,
        expires_s: postings.expires_s,
        entry: None,
    })
}
