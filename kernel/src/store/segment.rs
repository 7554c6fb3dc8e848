//! One segment of the log: its file, where its index is, and what it covers.

use super::footer::{self, Trailer};
use super::header::{Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::{Mark, SegmentIndex, Summary};
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::ids::{LogPosition, Offset};
use std::sync::Arc;

/// Where a segment's index is.
pub enum Indexed {
    /// In memory and growing: the segment is the last one.
    Open(Box<SegmentIndex>),
    /// In memory: the footer is on its way to the disk, or was damaged and made anew.
    Closed(Arc<SegmentIndex>),
    /// In the footer.
    Sealed(Trailer),
}

/// One segment.
pub struct Segment {
    /// Its header.
    pub header: Header,
    /// Its file's name.
    pub name: String,
    /// Its file.
    pub file: Arc<dyn DiskFile>,
    /// Where its index is.
    pub index: Indexed,
    /// Where its records end.
    pub end: u32,
    /// Its sparse index, once it has been read.
    pub marks: Option<Arc<Vec<Mark>>>,
}

impl Segment {
    /// A segment whose records end at `end`.
    pub fn new(header: Header, name: String, file: Arc<dyn DiskFile>, index: Indexed, end: u32) -> Segment {
        Segment { header, name, file, index, end, marks: None }
    }

    /// True if it ends in a footer.
    pub fn is_sealed(&self) -> bool {
        !matches!(self.index, Indexed::Open(_))
    }

    /// What it holds, in numbers.
    pub fn summary(&self) -> Summary {
        match &self.index {
            Indexed::Open(index) => index.summary,
            Indexed::Closed(index) => index.summary,
            Indexed::Sealed(trailer) => trailer.summary,
        }
    }

    /// The first offset that it covers.
    pub fn base_offset(&self) -> Offset {
        self.header.base_offset
    }

    /// The offset after the last one that it covers.
    pub fn end_offset(&self) -> Offset {
        match self.header.kind {
            SegmentKind::Log => self.summary().end_offset,
            SegmentKind::Carry => self.header.end_offset,
        }
    }

    /// The log position of a place in it.
    pub fn log_position(&self, position: u32) -> LogPosition {
        let within = u64::from(position.saturating_sub(SEGMENT_HEADER_BYTES));
        LogPosition(self.header.base_position.0.saturating_add(within))
    }

    /// True if it is sealed and nothing of its footer is damaged.
    pub fn footer_is_whole(&self) -> Result<bool> {
        match &self.index {
            Indexed::Sealed(trailer) => match footer::verify(self.file.as_ref(), trailer, &self.name) {
                Err(Error::Damaged { .. }) => Ok(false),
                other => other.map(|()| true),
            },
            Indexed::Open(_) | Indexed::Closed(_) => Ok(false),
        }
    }

    /// The bytes of its records and its header.
    pub fn bytes(&self) -> u64 {
        u64::from(self.end)
    }
}
