//! What readers ask: messages of some filters in a range of offsets, as columns; their number; ranges of equal size.

use super::archive::{Archive, Indexed};
use super::columns::Columns;
use super::encoding::{index64, narrow, wide};
use super::index::{between, Class};
use super::reader::LogReader;
use super::record::Kind;
use crate::error::Result;
use crate::ids::{Offset, TopicId};
use ahash::RandomState;
use std::collections::HashSet;
use std::sync::Arc;

/// What is remembered of the last query, because the next one mostly goes on where it ended.
pub(super) struct QueryMemory {
    filters: Vec<Vec<u8>>,
    topics_seen: usize,
    topics: Arc<HashSet<u32, RandomState>>,
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

impl LogReader {
    /// The messages that any of `filters` matches, as columns, and the offset up to which was read.
    pub fn read<Filter: AsRef<[u8]>>(&mut self, filters: &[Filter], limits: &Limits) -> Result<(Columns, Offset)> {
        let mut memory = self.recall(filters);
        let mut columns = Columns::default();
        let to = limits.to.min(self.end_offset());
        let mut from = limits.from;
        let mut bytes = limits.bytes;
        let mut place = self.archive.first_from(from);
        while from < to {
            let Some(segment) = self.archive.segments.get(place) else { break };
            from = from.max(segment.base_offset());
            let end = segment.end_offset().min(to);
            let number = segment.header.number;
            let start = match memory.resume {
                Some((offset, of, position)) if offset == from && of == number => position,
                _ => self.archive.position_of(place, from)?,
            };
            let positions = memory.positions(&mut self.archive, place)?;
            let reached = match positions {
                Some(positions) if positions.is_empty() => None,
                Some(positions) => {
                    let positions = between(&positions, start, u32::MAX).iter().copied();
                    self.read_segment(&mut memory, (place, end), positions, &mut columns, (limits.rows, &mut bytes))?
                }
                None => {
                    self.read_in_order(&mut memory, (place, start, end), &mut columns, (limits.rows, &mut bytes))?
                }
            };
            if let Some(reached) = reached {
                self.memory = Some(memory);
                return Ok((columns, reached));
            }
            from = end.max(from);
            place = place.saturating_add(1);
        }
        self.memory = Some(memory);
        Ok((columns, to.max(limits.from)))
    }

    fn read_segment(
        &mut self,
        memory: &mut QueryMemory,
        (place, end): (usize, Offset),
        positions: impl Iterator<Item = u32>,
        columns: &mut Columns,
        (rows, bytes): (usize, &mut u64),
    ) -> Result<Option<Offset>> {
        let number = self.archive.segments.get(place).map_or(0, |segment| segment.header.number);
        for position in positions {
            let Some(record) = self.archive.record(place, position)? else { continue };
            if record.offset >= end {
                break;
            }
            if columns.rows >= rows || *bytes == 0 {
                memory.resume = Some((record.offset, number, position));
                return Ok(Some(record.offset));
            }
            columns.push(self.dictionary.name(record.topic), &record);
            *bytes = bytes.saturating_sub(wide(record.size_bytes()));
        }
        Ok(None)
    }

    fn read_in_order(
        &mut self,
        memory: &mut QueryMemory,
        (place, start, end): (usize, u32, Offset),
        columns: &mut Columns,
        (rows, bytes): (usize, &mut u64),
    ) -> Result<Option<Offset>> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(None) };
        let (number, segment_end) = (segment.header.number, segment.end);
        let mut position = start;
        while position < segment_end {
            let Some(record) = self.archive.record(place, position)? else {
                position = self.archive.next_whole(place, position)?;
                continue;
            };
            if record.kind == Kind::Message {
                if record.offset >= end {
                    memory.resume = Some((record.offset, number, position));
                    break;
                }
                if columns.rows >= rows || *bytes == 0 {
                    memory.resume = Some((record.offset, number, position));
                    return Ok(Some(record.offset));
                }
                if memory.topics.contains(&record.topic.0) {
                    columns.push(self.dictionary.name(record.topic), &record);
                }
                *bytes = bytes.saturating_sub(wide(record.size_bytes()));
            }
            position = position.saturating_add(narrow(record.size_bytes()));
        }
        Ok(None)
    }

    /// The smallest offset such that the range from `from` on has `rows` matching messages, or `to`.
    pub fn end_after_rows<Filter: AsRef<[u8]>>(
        &mut self,
        filters: &[Filter],
        from: Offset,
        to: Offset,
        rows: u64,
    ) -> Result<Offset> {
        let topics = Arc::clone(&self.recall(filters).topics);
        let to = to.min(self.end_offset());
        let mut left = rows;
        if left == 0 {
            return Ok(from);
        }
        for place in self.archive.first_from(from)..self.archive.segments.len() {
            if self.archive.segments.get(place).is_none_or(|segment| segment.base_offset() >= to) {
                break;
            }
            let (low, high) = (self.archive.position_of(place, from)?, self.archive.position_of(place, to)?);
            let positions = matching_positions(&mut self.archive, place, &topics, low, high)?;
            let count = wide(positions.len());
            if count < left {
                left = left.saturating_sub(count);
                continue;
            }
            let last = positions.get(index64(left.saturating_sub(1))).copied();
            if let Some(record) = last.map(|last| self.archive.record(place, last)).transpose()?.flatten() {
                return Ok(Offset(record.offset.0.saturating_add(1)).min(to));
            }
        }
        Ok(to.max(from))
    }

    /// At most `parts` ranges of about equal stored bytes that cover the range.
    pub fn split<Filter: AsRef<[u8]>>(
        &mut self,
        filters: &[Filter],
        from: Offset,
        to: Offset,
        parts: usize,
    ) -> Result<Vec<(Offset, Offset)>> {
        let topics = Arc::clone(&self.recall(filters).topics);
        let mut steps: Vec<(Offset, u64)> = Vec::new();
        for place in self.archive.first_from(from)..self.archive.segments.len() {
            let mut bytes = 0_u64;
            for id in self.archive.topic_ids(place)?.into_iter().filter(|id| topics.contains(&id.0)) {
                bytes = bytes.saturating_add(self.archive.topic(place, id)?.map_or(0, |counts| counts.bytes));
            }
            let marks = self.archive.marks(place)?;
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

    fn recall<Filter: AsRef<[u8]>>(&mut self, filters: &[Filter]) -> QueryMemory {
        if let Some(memory) = self.memory.take() {
            let same = memory.filters.iter().map(Vec::as_slice).eq(filters.iter().map(AsRef::as_ref));
            if same && memory.topics_seen == self.dictionary.len() {
                return memory;
            }
        }
        let mut found = Vec::new();
        for filter in filters {
            self.dictionary.matching(filter.as_ref(), &mut found);
        }
        let mut topics = HashSet::with_hasher(RandomState::with_seeds(61, 62, 63, 64));
        topics.extend(found.into_iter().map(|id| id.0));
        QueryMemory {
            filters: filters.iter().map(|filter| filter.as_ref().to_vec()).collect(),
            topics_seen: self.dictionary.len(),
            topics: Arc::new(topics),
            resume: None,
            merged: None,
        }
    }
}

impl QueryMemory {
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
