//! What readers ask: messages of some filters in a range of offsets, as columns; their number; ranges of equal size.

use super::archive::Archive;
use super::columns::Columns;
use super::dictionary::Dictionary;
use super::encoding::{index64, narrow, wide};
use super::index::{between, Class};
use super::record::{Kind, Record};
use super::segment::Indexed;
use crate::error::Result;
use crate::ids::{Offset, TopicId};
use ahash::RandomState;
use std::collections::HashSet;
use std::sync::Arc;

/// A query, and how far it has come: the next one mostly goes on where it ended.
pub(super) struct Query {
    filters: Vec<Vec<u8>>,
    topics_seen: usize,
    topics: HashSet<u32, RandomState>,
    resume: Option<(Offset, u32, u32)>,
    merged: Option<(u32, Arc<Vec<u32>>)>,
}

/// The bounds of one read.
pub struct Limits {
    /// The first offset.
    pub from: Offset,
    /// The offset after the last one.
    pub to: Offset,
    /// Rows at most.
    pub rows: usize,
    /// Bytes of records at most, about.
    pub bytes: u64,
}

/// What has been read, and what else may be.
struct Reading {
    columns: Columns,
    rows: usize,
    bytes: u64,
}

impl Reading {
    fn is_full(&self) -> bool {
        self.columns.rows >= self.rows || self.bytes == 0
    }

    fn pass(&mut self, record: &Record<'_>) {
        self.bytes = self.bytes.saturating_sub(wide(record.size_bytes()));
    }
}

impl Query {
    /// The last one if it was for these filters and no topic is new, or a new one.
    pub(super) fn recall<'a, Filter: AsRef<[u8]>>(
        last: &'a mut Option<Query>,
        dictionary: &Dictionary,
        filters: &[Filter],
    ) -> &'a mut Query {
        let is_same = |last: &Query| {
            let same = last.filters.iter().map(Vec::as_slice).eq(filters.iter().map(AsRef::as_ref));
            same && last.topics_seen == dictionary.len()
        };
        if !last.as_ref().is_some_and(is_same) {
            *last = None;
        }
        last.get_or_insert_with(|| Query::new(dictionary, filters))
    }

    fn new<Filter: AsRef<[u8]>>(dictionary: &Dictionary, filters: &[Filter]) -> Query {
        let mut found = Vec::new();
        for filter in filters {
            dictionary.matching(filter.as_ref(), &mut found);
        }
        let mut topics = HashSet::with_hasher(RandomState::with_seeds(61, 62, 63, 64));
        topics.extend(found.into_iter().map(|id| id.0));
        Query {
            filters: filters.iter().map(|filter| filter.as_ref().to_vec()).collect(),
            topics_seen: dictionary.len(),
            topics,
            resume: None,
            merged: None,
        }
    }

    /// The messages that any of the filters matches, as columns, and the offset up to which was read.
    pub(super) fn read(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        limits: &Limits,
    ) -> Result<(Columns, Offset)> {
        let mut reading = Reading { columns: Columns::default(), rows: limits.rows, bytes: limits.bytes };
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
                Some(positions) if positions.is_empty() => None,
                Some(positions) => {
                    let positions = between(&positions, start, u32::MAX).iter().copied();
                    self.read_segment(archive, dictionary, (place, end), positions, &mut reading)?
                }
                None => self.read_in_order(archive, dictionary, (place, start, end), &mut reading)?,
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
        (place, end): (usize, Offset),
        positions: impl Iterator<Item = u32>,
        reading: &mut Reading,
    ) -> Result<Option<Offset>> {
        let number = archive.segments.get(place).map_or(0, |segment| segment.header.number);
        for position in positions {
            let Some(record) = archive.record(place, position)? else { continue };
            if record.offset >= end {
                break;
            }
            if reading.is_full() {
                self.resume = Some((record.offset, number, position));
                return Ok(Some(record.offset));
            }
            reading.columns.push(dictionary.name(record.topic), &record);
            reading.pass(&record);
        }
        Ok(None)
    }

    fn read_in_order(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        (place, start, end): (usize, u32, Offset),
        reading: &mut Reading,
    ) -> Result<Option<Offset>> {
        let Some(segment) = archive.segments.get(place) else { return Ok(None) };
        let (number, segment_end) = (segment.header.number, segment.end);
        let mut position = start;
        while position < segment_end {
            let Some(record) = archive.record(place, position)? else {
                position = archive.next_whole(place, position)?;
                continue;
            };
            if record.kind == Kind::Message {
                if record.offset >= end {
                    self.resume = Some((record.offset, number, position));
                    break;
                }
                if reading.is_full() {
                    self.resume = Some((record.offset, number, position));
                    return Ok(Some(record.offset));
                }
                if self.topics.contains(&record.topic.0) {
                    reading.columns.push(dictionary.name(record.topic), &record);
                }
                reading.pass(&record);
            }
            position = position.saturating_add(narrow(record.size_bytes()));
        }
        Ok(None)
    }

    /// The smallest offset such that the range from `from` on has `rows` matching messages, or `to`.
    pub(super) fn end_after_rows(&self, archive: &mut Archive, from: Offset, to: Offset, rows: u64) -> Result<Offset> {
        let mut left = rows;
        if left == 0 {
            return Ok(from);
        }
        for place in archive.first_from(from)..archive.segments.len() {
            if archive.segments.get(place).is_none_or(|segment| segment.base_offset() >= to) {
                break;
            }
            let (low, high) = (archive.position_of(place, from)?, archive.position_of(place, to)?);
            let positions = matching_positions(archive, place, &self.topics, low, high)?;
            let count = wide(positions.len());
            if count < left {
                left = left.saturating_sub(count);
                continue;
            }
            let last = positions.get(index64(left.saturating_sub(1))).copied();
            if let Some(record) = last.map(|last| archive.record(place, last)).transpose()?.flatten() {
                return Ok(Offset(record.offset.0.saturating_add(1)).min(to));
            }
        }
        Ok(to.max(from))
    }

    /// At most `parts` ranges of about equal stored bytes that cover the range.
    pub(super) fn split(
        &self,
        archive: &mut Archive,
        from: Offset,
        to: Offset,
        parts: usize,
    ) -> Result<Vec<(Offset, Offset)>> {
        let mut steps: Vec<(Offset, u64)> = Vec::new();
        for place in archive.first_from(from)..archive.segments.len() {
            let mut bytes = 0_u64;
            for id in archive.topic_ids(place)?.into_iter().filter(|id| self.topics.contains(&id.0)) {
                bytes = bytes.saturating_add(archive.topic(place, id)?.map_or(0, |counts| counts.bytes));
            }
            let marks = archive.marks(place)?;
            let share = bytes / wide(marks.len()).max(1);
            steps.extend(marks.iter().map(|mark| (mark.offset, share)));
        }
        steps.retain(|(offset, _)| *offset < to);
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
        if let Some((_, merged)) = self.merged.as_ref().filter(|(of, _)| *of == number && !growing) {
            return Ok(Some(Arc::clone(merged)));
        }
        let mut total = 0_u64;
        for id in self.topics.iter().copied().map(TopicId) {
            let counts = archive.topic(place, id)?;
            let both = counts.map_or(0, |counts| u64::from(counts.plain).saturating_add(u64::from(counts.queued)));
            total = total.saturating_add(both);
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

fn matching_positions(
    archive: &mut Archive,
    place: usize,
    topics: &HashSet<u32, RandomState>,
    low: u32,
    high: u32,
) -> Result<Vec<u32>> {
    let mut positions = Vec::new();
    for id in archive.topic_ids(place)?.into_iter().filter(|id| topics.contains(&id.0)) {
        archive.positions(place, id, Class::Plain, low, high, &mut positions)?;
        archive.positions(place, id, Class::Queued, low, high, &mut positions)?;
    }
    positions.sort_unstable();
    Ok(positions)
}
