//! The file of a later segment, written in full before it is part of the log.
//!
//! Owns: the steps of writing it, beside the loop. A sync into blocks that were written before has none to mark as
//! written, which takes the file system's journal besides: it takes two thirds of the time
//! (docs/adr/0031-segments-are-written-ahead.md).

use crate::disk::{Disk, DiskFile};
use crate::error::Result;
use crate::store::encoding::{index64, wide};
use std::sync::Arc;

/// The file's name until it is a segment.
pub(super) const WRITTEN_AHEAD: &str = "segment-ahead.partial";

/// What one step writes and syncs. A commit that comes meanwhile waits for that, a fraction of a millisecond; a step
/// costs a journal entry and a turn besides.
const STEP_BYTES: usize = 1_048_576;

static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// A file of zeros on its way.
pub(super) struct AheadWrite {
    disk: Arc<dyn Disk>,
    file: Option<Arc<dyn DiskFile>>,
    size_bytes: u64,
    written_bytes: u64,
}

impl AheadWrite {
    pub(super) fn new(disk: Arc<dyn Disk>, size_bytes: u64) -> AheadWrite {
        AheadWrite { disk, file: None, size_bytes, written_bytes: 0 }
    }

    /// Writes and syncs some more; true while there is more to write.
    pub(super) fn step(&mut self) -> Result<bool> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.disk.create(WRITTEN_AHEAD, self.size_bytes)?,
        };
        let count = index64(self.size_bytes.saturating_sub(self.written_bytes)).min(STEP_BYTES);
        file.write_at(self.written_bytes, ZEROS.get(..count).unwrap_or_default())?;
        file.sync()?;
        self.file = Some(file);
        self.written_bytes = self.written_bytes.saturating_add(wide(count));
        Ok(self.written_bytes < self.size_bytes)
    }

    /// What has been written goes away.
    pub(super) fn undo(&self) {
        drop(self.disk.remove(WRITTEN_AHEAD));
    }

    /// The whole file.
    pub(super) fn file(self) -> Option<Arc<dyn DiskFile>> {
        self.file
    }
}
