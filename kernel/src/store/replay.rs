//! Reading a segment from its start, over torn and damaged places.
//!
//! Owns: telling what a segment's bytes are: whole records, holes between them, and what its markers vouch for.
//! Changes nothing.

use super::encoding::{index, narrow};
use super::header::{Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::SegmentIndex;
use super::record::{self, Kind, Record};
use super::segment::Segment;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::ids::LogPosition;

/// What has been set aside and not written yet, in pieces that are compared at once.
const ZEROS: [u8; 4_096] = [0; 4_096];

/// The bytes of a segment's file, and where its records may end.
pub(super) struct Pages {
    bytes: Vec<u8>,
    /// Records end here at the latest.
    pub limit: u32,
    salt: u32,
}

/// What lies at a position.
pub(super) enum Place<'a> {
    /// A whole record, and where the next one starts.
    Whole(Record<'a>, u32),
    /// No record; and where the next whole one starts, if there is one.
    Hole(Option<u32>),
    /// The end of the records.
    End,
}

impl Pages {
    /// Reads a file. `limit` is where its records end, where that is known.
    pub fn read(file: &dyn DiskFile, limit: Option<u32>, salt: u32) -> Result<Pages> {
        let size = u32::try_from(file.size()?).unwrap_or(u32::MAX);
        let limit = limit.unwrap_or(size).min(size);
        let mut bytes = vec![0; index(limit)];
        let count = file.read_at(0, &mut bytes)?;
        bytes.truncate(count);
        Ok(Pages { limit: narrow(bytes.len()), bytes, salt })
    }

    /// What lies at `position`. `next_offset` is what the next record's offset is at least: a search after a hole
    /// uses it to pass over bytes that cannot be a record without computing their checksum.
    pub fn at(&self, position: u32, next_offset: u64) -> Place<'_> {
        if position >= self.limit {
            return Place::End;
        }
        match self.record(position) {
            Some(record) => {
                let end = position.saturating_add(narrow(record.size_bytes()));
                Place::Whole(record, end)
            }
            None => Place::Hole(self.next_whole(position.saturating_add(1), next_offset)),
        }
    }

    /// The record at `position`, if a whole one is there.
    pub fn record(&self, position: u32) -> Option<Record<'_>> {
        record::decode(self.bytes.get(index(position)..)?, self.salt)
    }

    /// Where the bytes that are not zero end: what was written and is not to be used.
    pub fn used_end(&self) -> u32 {
        let mut end = self.bytes.len();
        for chunk in self.bytes.rchunks(ZEROS.len()) {
            if ZEROS.get(..chunk.len()) != Some(chunk) {
                let used = chunk.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
                return narrow(end.saturating_sub(chunk.len()).saturating_add(used));
            }
            end = end.saturating_sub(chunk.len());
        }
        0
    }

    /// The greatest log position that a marker behind `position` vouches for.
    pub fn vouched(&self, position: u32, next_offset: u64) -> Option<LogPosition> {
        let mut vouched = None;
        let mut position = position;
        loop {
            match self.at(position, next_offset) {
                Place::Whole(record, end) => {
                    if record.kind == Kind::Marker {
                        vouched = vouched.max(Some(LogPosition(record.entry)));
                    }
                    position = end;
                }
                Place::Hole(Some(next)) => position = next,
                Place::Hole(None) | Place::End => return vouched,
            }
        }
    }

    /// The log position of the segment's start as its first marker tells it, and the offset of its first record: enough
    /// to do without a damaged header.
    pub fn base(&self) -> Option<(LogPosition, u64)> {
        let mut position = SEGMENT_HEADER_BYTES;
        let first_offset = self.record(position)?.offset.0;
        while let Place::Whole(record, end) = self.at(position, 0) {
            if record.kind == Kind::Marker {
                let before = u64::from(position.saturating_sub(SEGMENT_HEADER_BYTES));
                return Some((LogPosition(record.entry.checked_sub(before)?), first_offset));
            }
            position = end;
        }
        None
    }

    fn next_whole(&self, from: u32, next_offset: u64) -> Option<u32> {
        // Most of a segment that is not full is zeros. A record may end in some.
        let used = index(self.used_end()).saturating_add(record::HEADER_BYTES).min(self.bytes.len());
        let rest = self.bytes.get(index(from)..used)?;
        // Records behind a hole have offsets beyond what came before it, but not by more than a few segments hold.
        let most = next_offset.saturating_add(u64::from(u32::MAX));
        for (skipped, window) in rest.windows(record::HEADER_BYTES).enumerate() {
            let (Some(kind), Some(offset)) =
                (window.get(8), window.get(16..24).and_then(|bytes| bytes.try_into().ok()))
            else {
                continue;
            };
            let offset = u64::from_le_bytes(offset);
            let plausible = (1..=4).contains(kind) && offset >= next_offset && offset <= most;
            if !plausible {
                continue;
            }
            let position = from.saturating_add(narrow(skipped));
            if self.record(position).is_some() {
                return Some(position);
            }
        }
        None
    }
}

/// What a footer would say, from the records themselves; and where the last of them ends.
pub(super) fn index_of(pages: &Pages, header: &Header, seed: u64) -> (SegmentIndex, u32) {
    let mut index = SegmentIndex::new(header.base_offset, header.base_control, seed);
    let mut position = SEGMENT_HEADER_BYTES;
    loop {
        match pages.at(position, index.summary.end_offset.0) {
            Place::Whole(record, end) => {
                index.add(&record, position, record.size_bytes());
                position = end;
            }
            Place::Hole(Some(whole)) => position = whole,
            Place::Hole(None) | Place::End => return (index, position),
        }
    }
}

/// The log position up to which nothing is missing in a segment.
pub(super) fn whole_until(segment: &Segment, salt: u32) -> Result<LogPosition> {
    if segment.header.kind == SegmentKind::Carry {
        return Ok(segment.header.end_position);
    }
    if segment.is_sealed() {
        return Ok(segment.log_position(segment.end));
    }
    let pages = Pages::read(segment.file.as_ref(), None, salt)?;
    let mut position = SEGMENT_HEADER_BYTES;
    while let Some(record) = pages.record(position) {
        position = position.saturating_add(narrow(record.size_bytes()));
    }
    Ok(segment.log_position(position))
}

/// Where the records of a segment end, told by where the next one begins.
pub(super) fn end_before(header: &Header, next: &Header) -> Option<u32> {
    let size = next.base_position.0.checked_sub(header.base_position.0)?;
    Some(SEGMENT_HEADER_BYTES.saturating_add(u32::try_from(size).ok()?))
}
