//! What a log has on record of deliveries and retained messages, as recovery would find it; found without a writer.
//!
//! Owns: the order in which a checkpoint and the records behind it are taken over. Never writes. One segment is in
//! memory at a time, beside what was found.

use super::archive::Archive;
use super::checkpoint::{self, Recovered};
use super::derived::Derived;
use super::dictionary::Dictionary;
use super::header::{SegmentKind, SEGMENT_HEADER_BYTES};
use super::record::{Kind, Record};
use super::replay::{Pages, Place};
use super::retained::Retained;
use super::segment::Segment;
use crate::error::Result;
use crate::flow::moment::{RetainedRows, States};
use crate::ids::{LogPosition, Offset, Party, TopicId};
use std::collections::HashMap;

/// What lies from one log position up to before another, behind what a checkpoint has.
struct Tail {
    known: Recovered,
    until: LogPosition,
    derived: Derived,
    /// By topic, because its name may come later: the retained message, or `None` where it was deleted.
    retained: HashMap<u32, Option<Retained>>,
}

/// Delivery states and retained messages of the log in `archive`, whose topics are called by `names`. Beside a writer
/// it is what markers vouch for.
pub(super) fn read(
    archive: &Archive,
    names: &Dictionary,
    epoch: u128,
    is_written: bool,
) -> Result<(States, RetainedRows)> {
    let own = archive.segments.iter().filter(|segment| segment.header.kind == SegmentKind::Log);
    let first = own.map(|segment| segment.header.base_position).min();
    let mut derived = Derived::new(0);
    let is_usable = |position| first.is_some_and(|first| first <= position);
    let (_, known) = checkpoint::load(archive.disk.as_ref(), epoch, is_usable, &mut derived)?;
    let from = known.as_ref().map(|known| known.from);
    let behind = |segment: &&Segment| {
        from.is_none_or(|from| segment.header.kind == SegmentKind::Log && segment.log_position(segment.end) > from)
    };
    let segments: Vec<&Segment> = archive.segments.iter().filter(behind).collect();
    let until = if is_written { vouched(&segments, archive.salt)? } else { LogPosition(u64::MAX) };
    let mut tail = Tail { known: known.unwrap_or_default(), until, derived, retained: HashMap::new() };
    for segment in segments {
        tail.take_segment(segment, archive.salt)?;
    }
    Ok(tail.rows(names))
}

/// Everything before this log position is durable.
fn vouched(segments: &[&Segment], salt: u32) -> Result<LogPosition> {
    for segment in segments.iter().rev() {
        let pages = Pages::read(segment.file.as_ref(), Some(segment.end), salt)?;
        if let Some(vouched) = pages.vouched(SEGMENT_HEADER_BYTES, segment.header.base_offset.0) {
            return Ok(vouched);
        }
    }
    Ok(LogPosition(0))
}

impl Tail {
    fn take_segment(&mut self, segment: &Segment, salt: u32) -> Result<()> {
        let pages = Pages::read(segment.file.as_ref(), Some(segment.end), salt)?;
        let (mut position, mut next_offset) = (SEGMENT_HEADER_BYTES, segment.header.base_offset.0);
        loop {
            match pages.at(position, next_offset) {
                Place::Whole(record, end) => {
                    let here = segment.log_position(position);
                    let is_wanted = self.known.from <= here && here < self.until;
                    if is_wanted || segment.header.kind == SegmentKind::Carry {
                        self.take_record(&record, here);
                    }
                    next_offset = record.offset.0.saturating_add(u64::from(record.count));
                    position = end;
                }
                Place::Hole(Some(next)) => position = next,
                Place::Hole(None) | Place::End => return Ok(()),
            }
        }
    }

    fn take_record(&mut self, record: &Record<'_>, here: LogPosition) {
        if record.kind.has_messages() && record.retain {
            self.retained.insert(record.topic.0, Retained::of(record));
        }
        if record.kind == Kind::Control && record.publisher == Party(0) {
            // A state that cannot be decoded was refused when it was to be appended.
            drop(self.derived.take_control(record, |party| self.known.has(party, here)));
        }
    }

    fn rows(mut self, names: &Dictionary) -> (States, RetainedRows) {
        let Derived { parties, retained, .. } = &mut self.derived;
        for (topic, change) in self.retained {
            if let Some(name) = names.shared_name(TopicId(topic)) {
                retained.change(name, change);
            }
        }
        parties.begin_instant();
        retained.begin_instant(Offset(u64::MAX));
        (parties.instant_piece(None, usize::MAX).0, retained.instant_piece(usize::MAX).0)
    }
}
