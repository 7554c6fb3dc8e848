//! Where the records of one segment are: per topic, by offset and by time.
//!
//! Owns: the index of the open segment, which becomes the footer when the segment is sealed. Invariants:
//! 1. Postings of a topic are strictly increasing positions, QoS 0 apart from QoS 1 and 2, so that what queues
//!    count is exact.
//! 2. A mark says: no message at or after its position has a smaller offset, none before it a greater one.

use super::encoding::wide;
use super::record::{Kind, Record};
use crate::ids::{Offset, Timestamp, TopicId};
use ahash::RandomState;
use roaring::RoaringBitmap;
use std::collections::HashMap;

/// Bytes between two marks: what a search by offset walks at most.
const MARK_BYTES: u32 = 65_536;

/// Which records of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// QoS 0, and control records under topic 0.
    Plain,
    /// QoS 1 and 2, and what is kept of QoS 0: what queues want.
    Queued,
}

/// The records of one topic in one segment.
#[derive(Clone, Debug, Default)]
pub struct Postings {
    /// Positions of QoS 0 messages that are not kept, or of control records.
    pub plain: Vec<u32>,
    /// Positions of all other messages.
    pub queued: Vec<u32>,
    /// The second in which the first of these expires; 0 if none ever does.
    pub expires_s: u32,
    /// Their bytes together.
    pub bytes: u64,
    /// How many messages the first of these lists stands for.
    pub plain_messages: u32,
    /// How many the second one does.
    pub queued_messages: u32,
    /// How many of those are of QoS 0, which only queues want that are given entries whole.
    pub kept_messages: u32,
    /// The number of the first of them among the entries of the topic.
    pub first_entry: Option<u64>,
}

/// One entry of the sparse index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Offset of the record at `position`, or of the next message.
    pub offset: Offset,
    /// Its append time.
    pub time: Timestamp,
    /// Where it starts.
    pub position: u32,
}

/// What a segment holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All records.
    pub records: u64,
    /// Messages.
    pub messages: u64,
    /// The offset after its last message (or its base offset).
    pub end_offset: Offset,
    /// The number after its last control record (or its base number).
    pub end_control: u64,
    /// Append time of its first record, 0 if it has none.
    pub first_time: Timestamp,
    /// Append time of its last record, 0 if it has none.
    pub last_time: Timestamp,
}

/// The index of a segment in memory.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    /// By topic number.
    pub topics: HashMap<u32, Postings, RandomState>,
    /// The topics with records of class [`Class::Queued`].
    pub queued_topics: RoaringBitmap,
    /// By offset and time.
    pub marks: Vec<Mark>,
    /// In numbers.
    pub summary: Summary,
    /// To some queue a position is not one message: some of its records hold more than one, or are kept.
    pub is_uneven: bool,
    marked_until: u32,
}

impl SegmentIndex {
    /// The index of an empty segment. `seed` keeps clients from choosing topics that collide.
    pub fn new(base_offset: Offset, base_control: u64, seed: u64) -> SegmentIndex {
        let hasher = RandomState::with_seeds(seed, 11, 12, 13);
        let summary = Summary { end_offset: base_offset, end_control: base_control, ..Summary::default() };
        SegmentIndex {
            topics: HashMap::with_hasher(hasher),
            queued_topics: RoaringBitmap::new(),
            marks: Vec::new(),
            summary,
            is_uneven: false,
            marked_until: 0,
        }
    }

    /// Notes a record at `position`, after all that were noted before.
    pub fn add(&mut self, record: &Record<'_>, position: u32, size_bytes: usize) {
        let summary = &mut self.summary;
        if summary.first_time == Timestamp(0) {
            summary.first_time = record.appended_at;
        }
        summary.records = summary.records.saturating_add(1);
        // A marker has no time of its own, and searches need times that never fall.
        summary.last_time = summary.last_time.max(record.appended_at);
        if self.marks.is_empty() || position >= self.marked_until {
            self.marks.push(Mark { offset: record.offset, time: summary.last_time, position });
            self.marked_until = position.saturating_add(MARK_BYTES);
        }
        match record.kind {
            Kind::Message | Kind::Entry => {
                summary.messages = summary.messages.saturating_add(u64::from(record.count));
                summary.end_offset = record.end();
                self.is_uneven |= record.count > 1 || record.is_kept;
            }
            Kind::Control => summary.end_control = record.entry.saturating_add(1),
            Kind::Marker => return,
            Kind::Topic => {}
        }
        let postings = self.topics.entry(record.topic.0).or_default();
        postings.bytes = postings.bytes.saturating_add(wide(size_bytes));
        if record.kind.has_messages() {
            postings.first_entry.get_or_insert(record.entry);
        }
        match record.kind {
            Kind::Message | Kind::Entry if record.is_queued() => {
                if postings.queued.is_empty() {
                    self.queued_topics.insert(record.topic.0);
                }
                postings.queued.push(position);
                postings.queued_messages = postings.queued_messages.saturating_add(record.count);
                postings.kept_messages = postings.kept_messages.saturating_add(u32::from(record.is_kept));
                if let Some(at) = record.expires_at {
                    // Rounded down: whoever finds that nothing can have expired yet need not look at the records.
                    let second = u32::try_from(at.0 / 1_000_000).unwrap_or(u32::MAX).max(1);
                    postings.expires_s = if postings.expires_s == 0 { second } else { postings.expires_s.min(second) };
                }
            }
            Kind::Topic => {}
            _ => {
                postings.plain.push(position);
                postings.plain_messages = postings.plain_messages.saturating_add(record.count.max(1));
            }
        }
    }

    /// The positions of a topic's records.
    pub fn positions(&self, topic: TopicId, class: Class) -> &[u32] {
        let Some(postings) = self.topics.get(&topic.0) else { return &[] };
        match class {
            Class::Plain => &postings.plain,
            Class::Queued => &postings.queued,
        }
    }
}

/// The mark at which a search for the message at `offset` starts.
pub fn mark_before(marks: &[Mark], offset: Offset) -> Option<Mark> {
    let after = marks.partition_point(|mark| mark.offset <= offset);
    marks.get(after.saturating_sub(1)).copied()
}

/// The part of sorted `positions` that lies in `low..high`.
pub fn between(positions: &[u32], low: u32, high: u32) -> &[u32] {
    let start = positions.partition_point(|position| *position < low);
    let end = positions.partition_point(|position| *position < high);
    positions.get(start..end).unwrap_or_default()
}
