//! What goes away, and what outlives its segment (design section 3.9).
//!
//! Oldest segments go first, whole. Before a segment goes, what is still needed of it is kept: retained messages and
//! messages that cursors within their quota have not seen are copied *with their ids* to a carry segment; control
//! records in force, delivery states and topic names are written anew at the head of the log. Only when the copies are
//! synced are the files removed.
//!
//! Invariants:
//! 1. A carry segment gets its name when it is whole and synced; it says which range of the log it replaces, so that
//!    recovery finishes a removal that a crash interrupted and no message is ever there twice.
//! 2. No segment goes before a checkpoint stands behind it: the record that deleted a retained message is not kept,
//!    and what it deleted may be, in an older carry segment. Where the disk is nearly full the checkpoint follows at
//!    once instead.
//! 3. What a cursor loses is reported once, with its offsets and their number.

use super::archive::{Indexed, Segment};
use super::encoding::{narrow, wide};
use super::footer::{self, Trailer};
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::{Class, SegmentIndex};
use super::log::Log;
use super::record::{self, Kind};
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::flow::Subscription;
use crate::ids::{Location, LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::RETAIN_SEGMENTS_MAXIMUM;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of a carry segment that are written at once.
const WRITE_BYTES: usize = 1_048_576;

/// A queue whose messages outlive their segment.
#[derive(Clone, Debug)]
pub struct RetentionCursor {
    /// Whose it is.
    pub party: Party,
    /// Everything below is acknowledged.
    pub mark: Offset,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// What is older is lost where its segment goes.
    pub keep_from: Offset,
    /// It may have at most this many messages; older ones are lost where their segment goes.
    pub messages_maximum: u64,
}

/// What a cursor will not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose cursor.
    pub party: Party,
    /// The first offset.
    pub first: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// How many messages.
    pub count: u64,
}

/// What a call of `retain` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments that were removed.
    pub removed_segments: u64,
    /// Messages that were copied.
    pub carried_records: u64,
    /// What cursors have lost.
    pub losses: Vec<Loss>,
    /// Something is past retention and waits for a commit: to be called again.
    pub unfinished: bool,
}

/// The segments that go together, and the range that they cover.
struct Range {
    first: usize,
    end: usize,
    base: Header,
    end_offset: Offset,
    end_position: LogPosition,
    end_control: u64,
}

/// A carry segment that is written and not in force yet.
struct Carried {
    file: Arc<dyn DiskFile>,
    trailer: Trailer,
    end: u32,
    /// The topic of a retained message, the offset, where the record was, and where it is.
    moved: Vec<(Option<TopicId>, Offset, Location, Location)>,
}

impl Log {
    /// Removes sealed segments past retention, oldest first and a few at a time: those whose last record is older than
    /// `maximum_age_us`, and those without which the log would fit into `maximum_bytes`.
    pub fn retain(
        &mut self,
        maximum_age_us: u64,
        maximum_bytes: u64,
        cursors: &[RetentionCursor],
        now: Timestamp,
    ) -> Result<Retention> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let now = self.advance(now);
        let mut retention = Retention::default();
        let Some(range) = self.past_retention(now.0.saturating_sub(maximum_age_us), maximum_bytes) else {
            return self.thin(cursors, now);
        };
        if self.renewed.is_none_or(|(until, _)| until < range.end_position) {
            self.renew(&range, now)?;
            self.renewed = Some((range.end_position, self.end_position()));
            self.commit()?;
        }
        // What is written anew has to be durable before what it replaces goes. While a commit is on its way elsewhere
        // that takes another call.
        if self.renewed.is_none_or(|(_, durable_at)| self.durable_position() < durable_at) {
            retention.unfinished = true;
            return Ok(retention);
        }
        // Where the disk is nearly full, room comes first: a checkpoint would take some.
        let waits = self.checkpointed < range.end_position && !self.space_is_low;
        if waits && self.pending_checkpoint.is_none() {
            self.checkpoint(now)?;
            self.commit()?;
        }
        if self.checkpointed < range.end_position && !self.space_is_low {
            retention.unfinished = true;
            return Ok(retention);
        }
        let needed = self.needed(&range, cursors, &mut retention)?;
        retention.carried_records = wide(needed.len());
        let carry =
            if needed.is_empty() && cursors.is_empty() { None } else { Some(self.write_carry(&range, &needed, now)?) };
        retention.removed_segments = wide(range.end.saturating_sub(range.first));
        self.replace(&range, carry)?;
        if self.checkpointed < range.end_position && self.pending_checkpoint.is_none() {
            // There is room for it now, and what went tells nobody any more which retained messages it deleted.
            self.checkpoint(now)?;
        }
        Ok(retention)
    }

    /// Writes the next carry segment in turn anew, if at least half of what it holds is needed by nobody any more.
    fn thin(&mut self, cursors: &[RetentionCursor], now: Timestamp) -> Result<Retention> {
        let segments = &self.archive.segments;
        let carries = segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let place = self.thinned.checked_rem(carries).unwrap_or_default();
        self.thinned = place.saturating_add(1);
        let mut retention = Retention::default();
        let Some(carry) = segments.get(place).filter(|segment| segment.header.kind == SegmentKind::Carry) else {
            return Ok(retention);
        };
        let (messages, range) = (
            carry.summary().messages,
            Range {
                first: place,
                end: place.saturating_add(1),
                base: carry.header,
                end_offset: carry.end_offset(),
                end_position: carry.header.end_position,
                end_control: carry.summary().end_control,
            },
        );
        if messages == 0 || self.checkpointed < range.end_position {
            return Ok(retention);
        }
        let needed = self.needed(&range, cursors, &mut retention)?;
        if wide(needed.len()).saturating_mul(2) > messages {
            return Ok(Retention::default());
        }
        let carry = self.write_carry(&range, &needed, now)?;
        (retention.removed_segments, retention.carried_records) = (1, wide(needed.len()));
        self.replace(&range, Some(carry))?;
        Ok(retention)
    }

    /// The oldest segments if they are past retention. A small carry segment before them is written anew with them, so
    /// that carry segments do not become many.
    fn past_retention(&self, oldest: u64, maximum_bytes: u64) -> Option<Range> {
        let segments = &self.archive.segments;
        let mut bytes: u64 = segments.iter().map(Segment::bytes).sum();
        let own = segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let mut end = own;
        for segment in segments.get(own..).unwrap_or_default().iter().take(RETAIN_SEGMENTS_MAXIMUM) {
            let old = segment.summary().last_time.0 < oldest;
            if !matches!(segment.index, Indexed::Sealed(_)) || !(old || bytes > maximum_bytes) {
                break;
            }
            bytes = bytes.saturating_sub(segment.bytes());
            end = end.saturating_add(1);
        }
        let small = |segment: &Segment| segment.bytes() < u64::from(self.options.segment_bytes / 4);
        let first = match own.checked_sub(1) {
            Some(before) if segments.get(before).is_some_and(small) => before,
            _ => own,
        };
        let last = segments.get(end.checked_sub(1)?).filter(|_| end > own)?;
        let end_position = last.log_position(last.end);
        let base = segments.get(first)?.header;
        Some(Range {
            first,
            end,
            base,
            end_offset: last.end_offset(),
            end_position,
            end_control: last.summary().end_control,
        })
    }

    /// Writes at the head what the log would otherwise lose: topic names, control records in force, delivery states.
    fn renew(&mut self, range: &Range, now: Timestamp) -> Result<()> {
        let topics = self.dictionary.topics().filter(|(_, topic)| topic.declared_at < range.end_position);
        let old: Vec<TopicId> = topics.map(|(id, _)| id).collect();
        for id in old {
            if let Some((name, next)) =
                self.dictionary.get(id).and_then(|topic| Some((topic.name.clone()?, topic.next_entry)))
            {
                self.put_topic(id, &name, next, now)?;
            }
        }
        for place in range.first..range.end {
            let mut positions = Vec::new();
            self.archive.positions(place, TopicId(0), Class::Plain, 0, u32::MAX, &mut positions)?;
            for position in positions {
                let Some(record) = self.archive.record(place, position)? else { continue };
                let (table, key, number) = (record.publisher.0, record.key.unwrap_or_default().to_vec(), record.entry);
                if table > 0 && self.in_force.is(table, &key, number) {
                    let value = record.payload.to_vec();
                    self.append_control(table, &key, &value, now)?;
                }
            }
        }
        for party in self.parties.resting_on(range.end_control) {
            if let Some(state) = self.parties.encoded(party) {
                self.append_control(0, &party.0.to_le_bytes(), &state, now)?;
            }
        }
        Ok(())
    }

    /// The offsets in the range that outlive it: retained messages in force, and what cursors have not seen.
    fn needed(
        &mut self,
        range: &Range,
        cursors: &[RetentionCursor],
        retention: &mut Retention,
    ) -> Result<BTreeSet<Offset>> {
        let inside = |offset: Offset| range.base.base_offset <= offset && offset < range.end_offset;
        let mut needed: BTreeSet<Offset> =
            self.retained.iter().map(|kept| kept.offset).filter(|offset| inside(*offset)).collect();
        let durable = self.durable_position();
        needed.extend(self.retained.in_doubt(durable).filter(|offset| inside(*offset)));
        needed
            .extend(self.parties.handed_over().into_iter().map(|(offset, _)| offset).filter(|offset| inside(*offset)));
        for cursor in cursors.iter().filter(|cursor| cursor.mark < range.end_offset) {
            // What is lost of an older carry segment is told when that goes.
            let from = cursor.mark.max(range.base.base_offset);
            let (subscriptions, party) = (&cursor.subscriptions, cursor.party);
            let newest = self.offset_of_newest(subscriptions, party, from, cursor.messages_maximum, Timestamp(0))?;
            let kept_from = newest.max(cursor.keep_from).min(range.end_offset);
            let lost = self.count(subscriptions, party, (from, kept_from), Timestamp(0))?;
            if lost > 0 {
                retention.losses.push(Loss { party: cursor.party, first: from, end: kept_from, count: lost });
            }
            for place in range.first..range.end {
                let end = range.end_offset;
                needed.extend(self.matching_offsets(&cursor.subscriptions, cursor.party, place, kept_from, end)?);
            }
        }
        Ok(needed)
    }

    /// Copies the needed messages of the range to a carry segment, durably.
    fn write_carry(&mut self, range: &Range, needed: &BTreeSet<Offset>, now: Timestamp) -> Result<Segment> {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let header = Header {
            kind: SegmentKind::Carry,
            number,
            created_at: now,
            end_offset: range.end_offset,
            end_position: range.end_position,
            ..range.base
        };
        let name = header::segment_name(SegmentKind::Carry, number);
        let partial = format!("{name}.partial");
        // Nothing points into the new segment before all of it is durable: a full disk leaves everything as it was.
        let written = self.fill_carry(&header, &partial, range, needed);
        let Carried { file, trailer, end, moved } = match written {
            Ok(carried) => carried,
            Err(error) => {
                self.disk.remove(&partial)?;
                return Err(error);
            }
        };
        self.disk.rename(&partial, &name)?;
        self.disk.sync_directory()?;
        for (topic, offset, old, new) in moved {
            self.moved.insert(old, new);
            if let Some(topic) = topic {
                let name = self.dictionary.name(topic).to_vec();
                self.retained.relocate(&name, offset, new);
            }
        }
        Ok(Segment::new(header, name, file, Indexed::Sealed(trailer), end))
    }

    fn fill_carry(
        &mut self,
        header: &Header,
        partial: &str,
        range: &Range,
        needed: &BTreeSet<Offset>,
    ) -> Result<Carried> {
        let number = header.number;
        let file = self.disk.create(partial, 0)?;
        let mut moved = Vec::new();
        let mut bytes = header::encode(header);
        let mut written = 0_u64;
        let mut end = SEGMENT_HEADER_BYTES;
        let mut index = SegmentIndex::new(header.base_offset, range.end_control, self.options.seed);
        let mut last = None;
        for offset in needed.iter().copied() {
            let salt = self.archive.salt;
            let Some(old) = self.archive.find_message(offset, last)? else { continue };
            last = Some(old);
            let Some(record) = self.archive.record_at(old)?.filter(|record| record.kind == Kind::Message) else {
                continue;
            };
            let (size, topic, is_retained) = (record.size_bytes(), record.topic, record.retain);
            index.add(&record, end, size);
            record::encode(&record, salt, &mut bytes);
            let new = Location { segment: number, position: end };
            end = end.saturating_add(narrow(size));
            moved.push((is_retained.then_some(topic), offset, old, new));
            if bytes.len() >= WRITE_BYTES {
                file.write_at(written, &bytes)?;
                written = written.saturating_add(wide(bytes.len()));
                bytes.clear();
            }
        }
        index.summary.end_control = range.end_control;
        let names = super::append::names_of(&index, |id| self.dictionary.get(id));
        let (footer, trailer) = footer::encode(number, end, range.end_position, &index, &names);
        bytes.extend_from_slice(&footer);
        file.write_at(written, &bytes)?;
        file.sync()?;
        Ok(Carried { file, trailer, end, moved })
    }

    /// The carry segment, if there is one, takes the place of the range, whose files go.
    fn replace(&mut self, range: &Range, carry: Option<Segment>) -> Result<()> {
        let mut gone = BTreeSet::new();
        for _ in range.first..range.end {
            let Some(segment) = self.archive.remove(range.first) else { break };
            gone.insert(segment.header.number);
            self.disk.remove(&segment.name)?;
        }
        // A message that was carried before has moved once more; one that is gone is not looked for.
        let moved = std::mem::take(&mut self.moved);
        for (old, new) in &moved {
            let now = if gone.contains(&new.segment) { moved.get(new).copied() } else { Some(*new) };
            if let Some(now) = now {
                self.moved.insert(*old, now);
            }
        }
        if let Some(carry) = carry {
            self.archive.segments.insert(range.first.min(self.archive.segments.len()), carry);
        }
        self.memory.clear();
        self.disk.sync_directory()
    }
}
