//! What readers ask: messages of some filters in a range of offsets, as columns; their number; ranges of equal size.

use super::archive::Archive;
use super::columns::{ColumnSet, Columns};
use super::criteria::{Criteria, Filter, Topics};
use super::dictionary::Dictionary;
use super::encoding::{index64, narrow, wide};
use super::header::SegmentKind;
use super::index::{between, Class};
use super::record::{Kind, Record};
use super::segment::Indexed;
use super::unpacked::Unpacked;
use crate::entry::Closed;
use crate::error::Result;
use crate::ids::{Offset, TopicId};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of records that one read passes for each byte that it may answer with: where little of each message is wanted
/// an answer has more of them, and where few match it does not read on for ever.
const PASSED_FOR_EACH: u64 = 4;

/// A query, and how far it has come: the next one mostly goes on where it ended.
pub(super) struct Query {
    criteria: Criteria,
    topics_seen: usize,
    topics: Topics,
    filters: Option<HashMap<TopicId, Vec<Filter>>>,
    resume: Option<(Offset, u32, u32)>,
    merged: Option<(u32, Arc<Vec<u32>>)>,
    unpacked: Unpacked,
}

/// The bounds of one read.
pub struct Limits {
    /// The first offset.
    pub from: Offset,
    /// The offset after the last one.
    pub to: Offset,
    /// Rows at most.
    pub rows: usize,
    /// Bytes at most, about: of the columns, or, where a range is measured, of records.
    pub bytes: u64,
}

/// How far a range reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The offset after its last message.
    pub end: Offset,
    /// How many messages of the topics it has.
    pub rows: u64,
}

/// What has been read, and what else may be.
struct Reading {
    columns: Columns,
    rows: usize,
    bytes: u64,
    /// Bytes of the records that were read for it.
    passed: u64,
}

impl Reading {
    fn is_full(&self) -> bool {
        self.columns.rows >= self.rows
            || wide(self.columns.bytes()) >= self.bytes
            || self.passed >= self.bytes.saturating_mul(PASSED_FOR_EACH)
    }

    fn pass(&mut self, record: &Record<'_>) {
        self.passed = self.passed.saturating_add(wide(record.size_bytes()));
    }

    /// Tells of so many messages that cannot be read.
    fn miss(&mut self, messages: u64) {
        self.columns.missing = self.columns.missing.saturating_add(messages);
    }
}

impl Query {
    /// The last one if it was for these criteria and no topic is new, or a new one.
    pub(super) fn recall<'a>(
        last: &'a mut Option<Query>,
        dictionary: &Dictionary,
        criteria: &Criteria,
    ) -> &'a mut Query {
        let is_same = |last: &Query| last.topics_seen == dictionary.len() && last.criteria == *criteria;
        if !last.as_ref().is_some_and(is_same) {
            *last = None;
        }
        last.get_or_insert_with(|| Query {
            criteria: criteria.clone(),
            topics_seen: dictionary.len(),
            topics: criteria.topics(dictionary),
            filters: criteria.filters_of_topics(dictionary),
            resume: None,
            merged: None,
            unpacked: Unpacked::default(),
        })
    }

    /// The messages that meet the criteria, as columns, and the offset up to which was read.
    pub(super) fn read(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        columns: ColumnSet,
        limits: &Limits,
    ) -> Result<(Columns, Offset)> {
        let mut reading = Reading { columns: Columns::of(columns), rows: limits.rows, bytes: limits.bytes, passed: 0 };
        let (mut from, to) = (limits.from, limits.to);
        let mut place = archive.first_from(from);
        while from < to {
            let Some(segment) = archive.segments.get(place) else { break };
            from = from.max(segment.base_offset());
            let end = segment.end_offset().min(to);
            let number = segment.header.number;
            let start = match self.resume {
                Some((offset, of, position)) if offset == from && of == number => position,
                _ => archive.position_of(place, from)?,
            };
            let reached = match self.positions(archive, place)? {
                Some(positions) => {
                    let positions = between(&positions, start, u32::MAX).iter().copied();
                    self.read_segment(archive, dictionary, (place, start), (from, end), positions, &mut reading)?
                }
                None => self.read_in_order(archive, dictionary, (place, start), (from, end), &mut reading)?,
            };
            if let Some(reached) = reached {
                return Ok((reading.columns, reached));
            }
            from = end.max(from);
            place = place.saturating_add(1);
        }
        Ok((reading.columns, to.max(limits.from)))
    }

    fn read_segment(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        (place, start): (usize, u32),
        (from, end): (Offset, Offset),
        positions: impl Iterator<Item = u32>,
        reading: &mut Reading,
    ) -> Result<Option<Offset>> {
        let Some(segment) = archive.segments.get(place) else { return Ok(None) };
        let (number, is_log) = (segment.header.number, segment.header.kind == SegmentKind::Log);
        if is_log && archive.record(place, start)?.is_none_or(|record| record.offset > from) {
            return self.read_in_order(archive, dictionary, (place, start), (from, end), reading);
        }
        let mut read_to = (start, from);
        for position in positions {
            let Some(record) = archive.record(place, position)? else {
                // Its neighbours tell which offsets it had.
                return self.read_in_order(archive, dictionary, (place, read_to.0), (read_to.1, end), reading);
            };
            if record.offset >= end {
                break;
            }
            if let Some(offset) = self.push(&record, dictionary.name(record.topic), (from, end), reading) {
                self.resume = Some((offset, number, position));
                return Ok(Some(offset));
            }
            reading.pass(&record);
            read_to = (position.saturating_add(narrow(record.size_bytes())), record.end().max(from));
        }
        Ok(None)
    }

    fn read_in_order(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        (place, start): (usize, u32),
        (from, end): (Offset, Offset),
        reading: &mut Reading,
    ) -> Result<Option<Offset>> {
        let Some(segment) = archive.segments.get(place) else { return Ok(None) };
        let (number, segment_end) = (segment.header.number, segment.end);
        // Offsets are dense but where retention has left only what somebody needs: any other gap is damage.
        let is_log = segment.header.kind == SegmentKind::Log;
        let (mut position, mut expected) = (start, if is_log { from } else { end });
        while position < segment_end {
            let Some(record) = archive.record(place, position)? else {
                reading.miss(u64::from(!is_log));
                position = archive.next_whole(place, position)?;
                continue;
            };
            if record.kind.has_messages() {
                if record.offset >= end {
                    self.resume = Some((record.offset, number, position));
                    break;
                }
                reading.miss(record.offset.0.saturating_sub(expected.0));
                expected = expected.max(record.end());
                if reading.is_full() || self.topics.contains(&record.topic.0) {
                    let name = dictionary.name(record.topic);
                    if let Some(offset) = self.push(&record, name, (from, end), reading) {
                        self.resume = Some((offset, number, position));
                        return Ok(Some(offset));
                    }
                }
                reading.pass(&record);
            }
            position = position.saturating_add(narrow(record.size_bytes()));
        }
        reading.miss(end.0.saturating_sub(expected.0));
        Ok(None)
    }

    /// Appends the messages of a record that lie in a range and meet the criteria. Returns at which of them it stopped,
    /// if there may be no more. An entry whose messages cannot be told apart is one row without a value that says why.
    fn push(
        &mut self,
        record: &Record<'_>,
        topic: &[u8],
        (from, end): (Offset, Offset),
        reading: &mut Reading,
    ) -> Option<Offset> {
        if reading.is_full() {
            return Some(record.offset.max(from));
        }
        let Query { criteria, filters, unpacked, .. } = self;
        if record.kind != Kind::Entry {
            if criteria.takes(record, filters.as_ref()) {
                reading.columns.push(topic, record);
            }
            return None;
        }
        let one = Record { kind: Kind::Message, count: 1, properties: &[], payload: &[], ..*record };
        let opened = match unpacked.messages(record.offset, record.payload) {
            Ok(opened) => opened,
            Err(closed) => {
                let row = Record { properties: reason_of(closed), ..one };
                if record.offset >= from && criteria.takes(&row, filters.as_ref()) {
                    reading.columns.push(topic, &row);
                }
                return None;
            }
        };
        for offset in record.offset.max(from).0..record.end().min(end).0 {
            if reading.is_full() {
                return Some(Offset(offset));
            }
            let place = index64(offset.saturating_sub(record.offset.0));
            let Some(inner) = opened.message(place) else { continue };
            let row = Record {
                offset: Offset(offset),
                key: inner.key,
                properties: inner.properties,
                event_time: inner.event_time,
                retain: inner.retain,
                payload: inner.payload,
                ..one
            };
            if criteria.takes(&row, filters.as_ref()) {
                reading.columns.push(topic, &row);
            }
        }
        None
    }

    /// The smallest offset such that the range has so many messages of the topics, or about so many bytes of them, or
    /// ends at `to`.
    pub(super) fn reach(&self, archive: &mut Archive, limits: &Limits) -> Result<Reach> {
        let from = limits.from;
        let to = self.end_after_bytes(archive, from, limits.to, limits.bytes)?;
        let (wanted, mut rows) = (wide(limits.rows), 0_u64);
        if wanted == 0 {
            return Ok(Reach { end: from, rows });
        }
        for place in archive.first_from(from)..archive.segments.len() {
            let Some(segment) = archive.segments.get(place).filter(|segment| segment.base_offset() < to) else { break };
            let left = wanted.saturating_sub(rows);
            let first = segment.base_offset().max(from);
            let dense = segment.end_offset().min(to).0.saturating_sub(first.0);
            let is_log = segment.header.kind == SegmentKind::Log;
            if is_log && self.has_all_topics(archive, place)? {
                // Offsets are dense, so that what has every topic need not be looked at.
                if dense >= left {
                    return Ok(Reach { end: Offset(first.0.saturating_add(left)), rows: wanted });
                }
                rows = rows.saturating_add(dense);
                continue;
            }
            let (low, high) = (archive.position_of(place, from)?, archive.position_of(place, to)?);
            if archive.is_uneven(place) {
                match self.reach_in_entries(archive, place, (from, to), left)? {
                    Ok(end) => return Ok(Reach { end, rows: wanted }),
                    Err(found) => rows = rows.saturating_add(found),
                }
                continue;
            }
            let positions = matching_positions(archive, place, &self.topics, low, high)?;
            let count = wide(positions.len());
            if count < left {
                rows = rows.saturating_add(count);
                continue;
            }
            let last = positions.get(index64(left.saturating_sub(1))).copied();
            if let Some(record) = last.map(|last| archive.record(place, last)).transpose()?.flatten() {
                let end = Offset(record.offset.0.saturating_add(1)).min(to);
                return Ok(Reach { end, rows: wanted });
            }
        }
        Ok(Reach { end: to.max(from), rows })
    }

    /// The same in a segment of which some records hold several messages: the end, or how many messages there are.
    fn reach_in_entries(
        &self,
        archive: &mut Archive,
        place: usize,
        (from, to): (Offset, Offset),
        wanted: u64,
    ) -> Result<std::result::Result<Offset, u64>> {
        let low = archive.position_of(place, from)?;
        let mut found = 0_u64;
        for position in matching_positions(archive, place, &self.topics, low, u32::MAX)? {
            let Some(record) = archive.record(place, position)? else { continue };
            let (first, end) = (record.offset.max(from), record.end().min(to));
            if first >= to {
                break;
            }
            let left = wanted.saturating_sub(found);
            if end.0.saturating_sub(first.0) >= left {
                return Ok(Ok(Offset(first.0.saturating_add(left))));
            }
            found = found.saturating_add(end.0.saturating_sub(first.0));
        }
        Ok(Err(found))
    }

    fn has_all_topics(&self, archive: &mut Archive, place: usize) -> Result<bool> {
        Ok(archive.topic_ids(place)?.into_iter().all(|id| id == TopicId(0) || self.topics.contains(&id.0)))
    }

    /// An offset up to which there are about so many bytes of the topics, or `to`; never `from` itself.
    fn end_after_bytes(&self, archive: &mut Archive, from: Offset, to: Offset, bytes: u64) -> Result<Offset> {
        if bytes == u64::MAX {
            return Ok(to);
        }
        let mut gathered = 0_u64;
        for (offset, share) in self.steps(archive, from, to)? {
            if gathered >= bytes && offset > from {
                return Ok(offset);
            }
            gathered = gathered.saturating_add(share);
        }
        Ok(to)
    }

    /// Offsets of the sparse index, with about how many bytes of the topics follow on each before the next.
    fn steps(&self, archive: &mut Archive, from: Offset, to: Offset) -> Result<Vec<(Offset, u64)>> {
        let mut steps: Vec<(Offset, u64)> = Vec::new();
        for place in archive.first_from(from)..archive.segments.len() {
            if archive.segments.get(place).is_none_or(|segment| segment.base_offset() >= to) {
                break;
            }
            let mut bytes = 0_u64;
            for id in archive.topic_ids(place)?.into_iter().filter(|id| self.topics.contains(&id.0)) {
                bytes = bytes.saturating_add(archive.topic(place, id)?.map_or(0, |counts| counts.bytes));
            }
            let marks = archive.marks(place)?;
            let share = bytes / wide(marks.len()).max(1);
            steps.extend(marks.iter().map(|mark| (mark.offset, share)));
        }
        // What lies before the last mark at or below `from` is not asked for.
        let first = steps.partition_point(|(offset, _)| *offset <= from).saturating_sub(1);
        Ok(steps.into_iter().skip(first).take_while(|(offset, _)| *offset < to).collect())
    }

    /// At most `parts` ranges of about equal stored bytes that cover the range.
    pub(super) fn split(
        &self,
        archive: &mut Archive,
        from: Offset,
        to: Offset,
        parts: usize,
    ) -> Result<Vec<(Offset, Offset)>> {
        let steps = self.steps(archive, from, to)?;
        let total: u64 = steps.iter().map(|(_, share)| *share).sum();
        let part = (total / wide(parts).max(1)).max(1);
        let (mut ranges, mut first, mut gathered) = (Vec::new(), from, 0_u64);
        for (offset, share) in steps {
            if gathered >= part && offset > first && wide(ranges.len()).saturating_add(1) < wide(parts) {
                ranges.push((first, offset));
                (first, gathered) = (offset, 0);
            }
            gathered = gathered.saturating_add(share);
        }
        if first < to {
            ranges.push((first, to));
        }
        Ok(ranges)
    }

    /// The positions of the matching messages of a segment, or `None` where reading everything is cheaper.
    fn positions(&mut self, archive: &mut Archive, place: usize) -> Result<Option<Arc<Vec<u32>>>> {
        let Some(segment) = archive.segments.get(place) else { return Ok(None) };
        let (number, end, messages) = (segment.header.number, segment.end, segment.summary().messages);
        let growing = matches!(segment.index, Indexed::Open(_));
        let offsets = segment.end_offset().0.saturating_sub(segment.base_offset().0);
        if messages < offsets && segment.header.kind == SegmentKind::Log {
            // The index was made of what damage had left, and does not know what it lacks.
            return Ok(None);
        }
        if let Some((_, merged)) = self.merged.as_ref().filter(|(of, _)| *of == number && !growing) {
            return Ok(Some(Arc::clone(merged)));
        }
        let mut total = 0_u64;
        for id in self.topics.iter().copied().map(TopicId) {
            let counts = archive.topic(place, id)?;
            total = total.saturating_add(counts.map_or(0, |counts| counts.messages()));
            if total.saturating_mul(4) >= messages && total > 0 {
                return Ok(None);
            }
        }
        let positions = Arc::new(matching_positions(archive, place, &self.topics, 0, end)?);
        if !growing {
            self.merged = Some((number, Arc::clone(&positions)));
        }
        Ok(Some(positions))
    }
}

/// A user property that says why the messages of an entry cannot be told apart.
fn reason_of(closed: Closed) -> &'static [u8] {
    match closed {
        Closed::Encrypted => b"\x26\x00\x06closed\x00\x09encrypted",
        Closed::Chunk => b"\x26\x00\x06closed\x00\x05chunk",
        Closed::Malformed => b"\x26\x00\x06closed\x00\x09malformed",
        Closed::TooLarge => b"\x26\x00\x06closed\x00\x09too_large",
    }
}

fn matching_positions(archive: &mut Archive, place: usize, topics: &Topics, low: u32, high: u32) -> Result<Vec<u32>> {
    let mut positions = Vec::new();
    for id in archive.topic_ids(place)?.into_iter().filter(|id| topics.contains(&id.0)) {
        archive.positions(place, id, Class::Plain, low, high, &mut positions)?;
        archive.positions(place, id, Class::Queued, low, high, &mut positions)?;
    }
    positions.sort_unstable();
    Ok(positions)
}
