//! The files that segments are written to, before they are part of the log.
//!
//! Owns: the numbers of segments, and the file that is set aside for the next one. A number is given once.

use super::ahead::{AheadWrite, WRITTEN_AHEAD};
use super::header::{segment_name, SegmentKind};
use super::space::Space;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use std::sync::Arc;

/// A file set aside for a later segment, which gets its name and number when it is begun.
pub(super) const PREPARED: &str = "segment.partial";

/// Where segments get their files from.
pub(super) struct Files {
    disk: Arc<dyn Disk>,
    segment_bytes: u32,
    next_number: u32,
    prepared: Option<Arc<dyn DiskFile>>,
    /// One that is written in full, which is taken first.
    written: Option<Arc<dyn DiskFile>>,
}

impl Files {
    /// No segment has a number yet.
    pub(super) fn new(disk: Arc<dyn Disk>, segment_bytes: u32) -> Files {
        Files { disk, segment_bytes, next_number: 1, prepared: None, written: None }
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// There is a segment with this number.
    pub(super) fn note(&mut self, number: u32) {
        self.next_number = self.next_number.max(number.saturating_add(1));
    }

    /// The number of the next segment, for whoever makes a file of its own.
    pub(super) fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    /// The size of the file that is to be set aside, if there is none.
    pub(super) fn wanted_bytes(&self) -> Option<u64> {
        self.prepared.is_none().then_some(u64::from(self.segment_bytes))
    }

    /// This one is set aside.
    pub(super) fn set_aside(&mut self, file: Arc<dyn DiskFile>) {
        self.prepared = Some(file);
    }

    /// How a file is written in full, if there is none.
    pub(super) fn ahead(&self) -> Option<AheadWrite> {
        let wanted = self.written.is_none();
        wanted.then(|| AheadWrite::new(Arc::clone(&self.disk), u64::from(self.segment_bytes)))
    }

    /// This one is written in full.
    pub(super) fn set_aside_written(&mut self, write: AheadWrite) {
        self.written = write.file();
    }

    /// The file of the next segment: one that was set aside, or one made here and now. On a disk that is full it
    /// grows as it is written, because acknowledgements and control records still have to go on. Either has its number
    /// only from here on, so that numbers grow with the offsets, whichever file was made first.
    pub(super) fn take(&mut self, space: &mut Space) -> Result<(u32, Arc<dyn DiskFile>)> {
        let name = segment_name(SegmentKind::Log, self.next_number);
        let written = self.written.take().map(|file| (file, WRITTEN_AHEAD));
        let file = match written.or_else(|| self.prepared.take().map(|file| (file, PREPARED))) {
            Some((file, partial)) => {
                self.disk.rename(partial, &name)?;
                file
            }
            None => match self.disk.create(&name, u64::from(self.segment_bytes)) {
                Err(Error::Disk { full: true, .. }) => {
                    space.run_out();
                    self.disk.create(&name, 0)?
                }
                other => other?,
            },
        };
        Ok((self.take_number(), file))
    }
}
