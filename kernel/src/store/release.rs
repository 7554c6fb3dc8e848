//! Memory that the system has for the files of segments, and that goes back to it.
//!
//! Owns: which segment is next, and how much at a time. The end of the log is in memory here already, and whoever is
//! far behind reads a segment from its beginning to its end, which a disk does well; meanwhile a log that is never
//! released takes all the memory that there is (docs/adr/0037-what-lies-far-behind-leaves-memory.md).

use super::header::{Header, SegmentKind};
use super::segment::{Indexed, Segment};
use crate::disk::DiskFile;
use crate::error::Result;
use crate::ids::LogPosition;
use std::sync::{Arc, Weak};

/// What one step gives back: a thousand pages, in some tenths of a millisecond.
const STEP_BYTES: u64 = 4_194_304;

/// How far segments have been released.
pub(super) struct Released {
    /// The number of the first segment that has not been.
    pub(super) until: u32,
}

impl Released {
    /// The next one, if it has its footer and ends so far before the end of the log.
    pub(super) fn next(&mut self, segments: &[Segment], end: LogPosition, kept_bytes: u64) -> Option<Release> {
        let is_left = |header: &Header| header.kind == SegmentKind::Log && header.number >= self.until;
        let next = segments.iter().find(|segment| is_left(&segment.header))?;
        let is_behind = next.log_position(next.end).0.saturating_add(kept_bytes) <= end.0;
        if !is_behind || !matches!(next.index, Indexed::Sealed(_)) {
            return None;
        }
        self.until = next.header.number.saturating_add(1);
        Some(Release { file: Arc::downgrade(&next.file), position: 0 })
    }
}

/// The file of a segment whose memory is given back. It is not held: where the segment goes meanwhile, so does
/// the file.
pub(super) struct Release {
    file: Weak<dyn DiskFile>,
    position: u64,
}

impl Release {
    /// Gives back some more; true while there is more.
    pub(super) fn step(&mut self) -> Result<bool> {
        let Some(file) = self.file.upgrade() else { return Ok(false) };
        file.release(self.position, STEP_BYTES);
        self.position = self.position.saturating_add(STEP_BYTES);
        Ok(self.position < file.size()?)
    }
}
