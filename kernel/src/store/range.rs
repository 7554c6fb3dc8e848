//! Segments that go together: which, and what they cover.
//!
//! Owns: nothing; it looks at the segments that there are.

use super::archive::Archive;
use super::header::{Header, SegmentKind};
use super::segment::{Indexed, Segment};
use crate::ids::{LogPosition, Offset};
use crate::limits::{RETAIN_BYTES_MAXIMUM, RETAIN_SEGMENTS_MAXIMUM};

/// The segments that go together, and the range that they cover.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) base: Header,
    pub(super) end_offset: Offset,
    pub(super) end_position: LogPosition,
    pub(super) end_control: u64,
}

impl Range {
    /// The oldest segments if they are past retention: those with nothing since `oldest`, and those without which the
    /// log would fit into `maximum_bytes`. A carry segment before them that has fewer than `small_bytes` is written
    /// anew with them, so that carry segments do not become many.
    pub(super) fn past_retention(
        archive: &Archive,
        oldest: u64,
        maximum_bytes: u64,
        small_bytes: u64,
    ) -> Option<Range> {
        let segments = &archive.segments;
        let mut bytes: u64 = segments.iter().map(Segment::bytes).sum();
        let own = segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let (mut end, mut going) = (own, 0_u64);
        for segment in segments.get(own..).unwrap_or_default().iter().take(RETAIN_SEGMENTS_MAXIMUM) {
            let old = segment.summary().last_time.0 < oldest;
            let is_past = matches!(segment.index, Indexed::Sealed(_)) && (old || bytes > maximum_bytes);
            going = going.saturating_add(segment.bytes());
            if !is_past || (going > RETAIN_BYTES_MAXIMUM && end > own) {
                break;
            }
            bytes = bytes.saturating_sub(segment.bytes());
            end = end.saturating_add(1);
        }
        let small = |segment: &Segment| segment.bytes() < small_bytes && matches!(segment.index, Indexed::Sealed(_));
        let first = match own.checked_sub(1) {
            Some(before) if segments.get(before).is_some_and(small) => before,
            _ => own,
        };
        let last = segments.get(end.checked_sub(1)?).filter(|_| end > own)?;
        Some(Range {
            first,
            end,
            base: segments.get(first)?.header,
            end_offset: last.end_offset(),
            end_position: last.log_position(last.end),
            end_control: last.summary().end_control,
        })
    }

    /// Carry segments that follow one another, as many as one may replace: those in turn behind so many others, or from
    /// the first one on. `None` if there are none that the disk has not damaged.
    pub(super) fn of_carries(archive: &Archive, turn: usize) -> Option<Range> {
        let own = archive.segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let carries = archive.segments.get(..own)?;
        let is_whole = |segment: &Segment| matches!(segment.index, Indexed::Sealed(_));
        let first = (turn..own).chain(0..own).find(|place| carries.get(*place).is_some_and(is_whole))?;
        let mut bytes = 0_u64;
        let fits = |segment: &&Segment| {
            bytes = bytes.saturating_add(segment.bytes());
            is_whole(segment) && bytes <= RETAIN_BYTES_MAXIMUM
        };
        let together = carries.get(first..)?.iter().take(RETAIN_SEGMENTS_MAXIMUM).take_while(fits).count().max(1);
        let end = first.saturating_add(together);
        let (base, last) = (carries.get(first)?, carries.get(end.checked_sub(1)?)?);
        Some(Range {
            first,
            end,
            base: base.header,
            end_offset: last.end_offset(),
            end_position: last.header.end_position,
            end_control: last.summary().end_control,
        })
    }

    /// True if an offset lies in it.
    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.base.base_offset <= offset && offset < self.end_offset
    }
}
