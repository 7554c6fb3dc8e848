//! Group commit: what gathered is frozen, written and synced without holding the log, and then taken over.
//!
//! Invariants:
//! 1. At most one commit is on its way; while it is, the next group gathers.
//! 2. `durable` moves only after a sync of everything below it has returned (durability `fsync`).
//! 3. A marker is written only behind bytes that are durable, so whatever a marker vouches for and cannot be read is
//!    damage, and whatever none vouches for is a torn tail (docs/adr/0004-torn-tail-or-damage.md).
//! 4. A failed sync poisons the log. A write that fails because the disk is full loses nothing: the group is tried
//!    again, and the next group's marker, which counted on it, is taken back.

use super::archive::Indexed;
use super::encoding::wide;
use super::footer::{self, Trailer};
use super::index::SegmentIndex;
use super::log::{Durability, Log};
use super::record::{self, Record, MARKER_BYTES};
use super::tail::Chunk;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::ids::{LogPosition, Offset, Timestamp, TopicId};
use std::sync::Arc;

/// A file set aside for a later segment, which gets its name and number when it is begun.
pub(super) const PREPARED: &str = "segment.partial";

/// Where a commit ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The offset of the next message.
    pub offset: Offset,
    /// The number of the next control record.
    pub control: u64,
    /// The log position.
    pub position: LogPosition,
}

/// One step of a commit.
pub(super) enum Work {
    Header {
        file: Arc<dyn DiskFile>,
        bytes: Vec<u8>,
    },
    Write {
        file: Arc<dyn DiskFile>,
        chunk: Arc<Chunk>,
    },
    Seal {
        number: u32,
        file: Arc<dyn DiskFile>,
        records_end: u32,
        end_position: LogPosition,
        index: Arc<SegmentIndex>,
        names: Vec<(TopicId, Arc<[u8]>)>,
    },
}

impl Work {
    fn file(&self) -> &Arc<dyn DiskFile> {
        match self {
            Work::Header { file, .. } | Work::Write { file, .. } | Work::Seal { file, .. } => file,
        }
    }
}

/// A group on its way to the disk.
pub struct Commit {
    disk: Arc<dyn Disk>,
    work: Vec<Work>,
    ends: Ends,
    sync: bool,
    sync_directory: bool,
    marker: (Arc<dyn DiskFile>, u64, Vec<u8>),
    /// The size of the next segment's file, if there is none yet.
    prepare: Option<u64>,
}

/// How a commit ended.
pub struct Ended {
    result: Result<()>,
    sealed: Vec<(u32, Trailer)>,
    prepared: Option<Result<Arc<dyn DiskFile>>>,
    free_bytes: Option<u64>,
}

impl Commit {
    /// Does the writes and the sync. Any thread; nothing else of the log is needed.
    pub fn run(&self) -> Ended {
        let mut ended = Ended { result: Ok(()), sealed: Vec::new(), prepared: None, free_bytes: None };
        ended.result = self.write(&mut ended.sealed);
        if ended.result.is_ok() {
            let (file, position, bytes) = &self.marker;
            // Only tells readers elsewhere sooner; the next group writes the same bytes at the same place.
            drop(file.write_at(*position, bytes));
            ended.prepared = self.prepare.map(|size| self.disk.create(PREPARED, size));
        }
        ended.free_bytes = self.disk.free_bytes().ok();
        ended
    }

    fn write(&self, sealed: &mut Vec<(u32, Trailer)>) -> Result<()> {
        let mut files: Vec<&Arc<dyn DiskFile>> = Vec::new();
        for work in &self.work {
            if !files.last().is_some_and(|file| Arc::ptr_eq(file, work.file())) {
                files.push(work.file());
            }
            match work {
                Work::Header { file, bytes } => file.write_at(0, bytes)?,
                Work::Write { file, chunk } => file.write_at(u64::from(chunk.start), &chunk.bytes)?,
                Work::Seal { number, file, records_end, end_position, index, names } => {
                    let (bytes, trailer) = footer::encode(*number, *records_end, *end_position, index, names);
                    let start = u64::from(*records_end);
                    file.write_at(start, &bytes)?;
                    file.truncate(start.saturating_add(wide(bytes.len())))?;
                    sealed.push((*number, trailer));
                }
            }
        }
        // A sealed segment is synced even where messages are not.
        if self.sync || !sealed.is_empty() {
            if !files.last().is_some_and(|file| Arc::ptr_eq(file, &self.marker.0)) {
                files.push(&self.marker.0);
            }
            for file in files {
                file.sync()?;
            }
            if self.sync_directory {
                self.disk.sync_directory()?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Freezes what has gathered; `None` if there is nothing or a commit is on its way already.
    pub fn begin_commit(&mut self) -> Result<Option<Commit>> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        if self.in_flight {
            return Ok(None);
        }
        self.freeze();
        if self.work.is_empty() && self.synced >= self.sync_until {
            return Ok(None);
        }
        let Some(segment) = self.archive.segments.last() else { return Ok(None) };
        let ends = self.ends();
        let marker = Record::marker(ends.position, ends.offset, Timestamp(self.head.time));
        let mut bytes = Vec::with_capacity(MARKER_BYTES);
        record::encode(&marker, self.archive.salt, &mut bytes);
        let early = (Arc::clone(&segment.file), u64::from(segment.end), bytes);
        self.next_marker = marker;
        self.group_started = false;
        self.in_flight = true;
        let prepare = self.prepared.is_none().then_some(u64::from(self.options.segment_bytes));
        Ok(Some(Commit {
            disk: Arc::clone(&self.disk),
            work: std::mem::take(&mut self.work),
            ends,
            sync: self.options.durability == Durability::Fsync || self.synced < self.sync_until,
            sync_directory: std::mem::take(&mut self.sync_directory),
            marker: early,
            prepare,
        }))
    }

    /// Takes over an ended commit. An error means that its group is not durable.
    pub fn finish_commit(&mut self, commit: Commit, ended: Ended) -> Result<()> {
        self.in_flight = false;
        if let Some(free_bytes) = ended.free_bytes {
            self.space_is_low = free_bytes < self.options.reserve_bytes;
        }
        match ended.result {
            Ok(()) => {
                self.totals.commits = self.totals.commits.wrapping_add(1);
                let bytes = commit.ends.position.0.saturating_sub(self.written.position.0);
                self.totals.committed_bytes = self.totals.committed_bytes.wrapping_add(bytes);
                self.durable = commit.ends;
                self.written = commit.ends;
                if commit.sync || !ended.sealed.is_empty() {
                    self.synced = commit.ends.position;
                }
            }
            Err(Error::Disk { operation: "write", full: true, .. }) => {
                self.take_back(commit);
                return ended.result;
            }
            Err(_) => {
                self.poisoned = true;
                return ended.result;
            }
        }
        for (number, trailer) in ended.sealed {
            self.sealed(number, trailer);
        }
        match ended.prepared {
            Some(Ok(prepared)) => self.prepared = Some(prepared),
            Some(Err(_)) => self.space_is_low = true,
            None => {}
        }
        self.trim_tail();
        Ok(())
    }

    /// Tells readers elsewhere that everything recovered is durable, as a commit does.
    pub(super) fn announce(&self) {
        if let Some(segment) = self.archive.segments.last() {
            let mut bytes = Vec::with_capacity(MARKER_BYTES);
            record::encode(&self.next_marker, self.archive.salt, &mut bytes);
            drop(segment.file.write_at(u64::from(segment.end), &bytes));
        }
    }

    /// Writes and syncs what has been appended, here and now. True if there was something.
    pub fn commit(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some(commit) = self.begin_commit()? {
            let ended = commit.run();
            self.finish_commit(commit, ended)?;
            any = true;
        }
        Ok(any)
    }

    pub(super) fn ends(&self) -> Ends {
        Ends { offset: self.end_offset(), control: self.head.control, position: self.end_position() }
    }

    fn sealed(&mut self, number: u32, trailer: Trailer) {
        if let Some(place) = self.archive.find(number) {
            self.archive.reindex(place, Indexed::Sealed(trailer));
        }
    }

    fn trim_tail(&mut self) {
        // What gathers now starts behind what was written.
        let unwritten = self.work.iter().find_map(|work| match work {
            Work::Write { chunk, .. } => Some((chunk.segment, chunk.start)),
            _ => None,
        });
        let filling = &self.archive.tail.filling;
        let keep = unwritten.unwrap_or((filling.segment, filling.start));
        self.archive.tail.trim(self.options.cache_bytes, keep);
    }

    /// The disk was full: the group is tried again, together with what has gathered since.
    fn take_back(&mut self, commit: Commit) {
        self.space_is_low = true;
        self.sync_directory |= commit.sync_directory;
        let gathered = std::mem::replace(&mut self.work, commit.work);
        let vouches_for = self.written.position;
        if self.group_started {
            self.revoke_marker(gathered);
        } else {
            self.work.extend(gathered);
        }
        self.next_marker.entry = vouches_for.0;
        // Nothing may vouch for the group before it is durable: the groups become one, begun by the older marker.
        self.group_started = true;
    }

    /// The marker of the group that has gathered vouches for one that failed: it is made to vouch for no more than what
    /// is durable.
    fn revoke_marker(&mut self, mut gathered: Vec<Work>) {
        let mut marker = self.next_marker;
        marker.entry = self.written.position.0;
        let mut bytes = Vec::with_capacity(MARKER_BYTES);
        record::encode(&marker, self.archive.salt, &mut bytes);
        let first = gathered.iter_mut().find_map(|work| match work {
            Work::Write { chunk, .. } => Some(chunk),
            _ => None,
        });
        match first {
            Some(chunk) => {
                let mut copy = chunk.bytes.clone();
                put_at_start(&mut copy, &bytes);
                *chunk = Arc::new(Chunk { segment: chunk.segment, start: chunk.start, bytes: copy });
                self.archive.tail.replace(chunk);
            }
            None => put_at_start(&mut self.archive.tail.filling.bytes, &bytes),
        }
        self.work.extend(gathered);
    }
}

fn put_at_start(target: &mut [u8], bytes: &[u8]) {
    if let Some(start) = target.get_mut(..bytes.len()) {
        start.copy_from_slice(bytes);
    }
}
