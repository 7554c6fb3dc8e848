//! Group commit: what gathered is frozen, written and synced without holding the log, and then taken over.
//!
//! Owns: up to where the log is written, durable and on the medium, and whether it takes anything any more.
//!
//! Invariants:
//! 1. At most one commit is on its way; while it is, the next group gathers.
//! 2. `durable` moves only after a sync of everything below it has returned (durability `fsync`).
//! 3. A marker is written only behind bytes that are durable, so whatever a marker vouches for and cannot be read is
//!    damage, and whatever none vouches for is a torn tail (docs/adr/0004-torn-tail-or-damage.md).
//! 4. A failed sync poisons the log. A write that fails because the disk is full loses nothing: the group is tried
//!    again, and the next group's marker, which counted on it, is taken back.

use super::append::Appending;
use super::archive::Archive;
use super::files::PREPARED;
use super::footer::Trailer;
use super::group::{Gathered, Group};
use super::head::{Ends, Head};
use super::options::{Durability, Options};
use super::record::{self, MARKER_BYTES};
use super::segment::Indexed;
use super::space::Space;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::ids::LogPosition;
use std::sync::Arc;

/// A group on its way to the disk.
pub struct Commit {
    disk: Arc<dyn Disk>,
    gathered: Gathered,
    ends: Ends,
    sync: bool,
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
        for work in &self.gathered.work {
            if !files.last().is_some_and(|file| Arc::ptr_eq(file, work.file())) {
                files.push(work.file());
            }
            sealed.extend(work.run()?);
        }
        // A sealed segment is synced even where messages are not.
        if self.sync || !sealed.is_empty() {
            if !files.last().is_some_and(|file| Arc::ptr_eq(file, &self.marker.0)) {
                files.push(&self.marker.0);
            }
            for file in files {
                file.sync()?;
            }
            if self.gathered.sync_directory {
                self.disk.sync_directory()?;
            }
        }
        Ok(())
    }
}

/// What commits have come to.
pub(super) struct Commits {
    durability: Durability,
    /// Bytes of the tail that are kept in memory.
    tail_bytes: usize,
    durable: Ends,
    written: Ends,
    /// Everything below is on the medium, whatever counts as durable.
    synced: LogPosition,
    /// Commits sync until everything below this is on the medium.
    sync_until: LogPosition,
    in_flight: bool,
    poisoned: bool,
    /// Groups that reached the disk since the log was opened, and their bytes.
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Commits {
    /// Of a log that is on the medium up to its end: recovery made sure of it.
    pub(super) fn new(options: &Options, ends: Ends) -> Commits {
        Commits {
            durability: options.durability,
            tail_bytes: options.cache_bytes,
            durable: ends,
            written: ends,
            synced: ends.position,
            sync_until: LogPosition(0),
            in_flight: false,
            poisoned: false,
            count: 0,
            bytes: 0,
        }
    }

    /// An error once a sync has failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.poisoned {
            true => Err(Error::Poisoned),
            false => Ok(()),
        }
    }

    /// True if what is acknowledged is on the medium.
    pub(super) fn syncs(&self) -> bool {
        self.durability == Durability::Fsync
    }

    /// The end of what is durable, of a log that ends at `head`.
    pub(super) fn durable(&self, head: &Head) -> Ends {
        match self.durability {
            Durability::Memory => head.ends(),
            Durability::Fsync | Durability::Os => self.durable,
        }
    }

    /// The log position below which everything is written.
    pub(super) fn written(&self) -> LogPosition {
        self.written.position
    }

    /// The log position below which everything is on the medium, whatever counts as durable.
    pub(super) fn synced(&self) -> LogPosition {
        self.synced
    }

    /// The next commit syncs, if everything below is not yet on the medium.
    pub(super) fn sync_until(&mut self, position: LogPosition) {
        self.sync_until = position;
    }

    /// Freezes what has gathered; `None` if there is nothing or a commit is on its way already.
    pub(super) fn begin(&mut self, appending: &mut Appending, archive: &mut Archive) -> Result<Option<Commit>> {
        self.check()?;
        if self.in_flight {
            return Ok(None);
        }
        appending.freeze(archive);
        if appending.group.is_empty() && self.synced >= self.sync_until {
            return Ok(None);
        }
        let Some(segment) = archive.segments.last() else { return Ok(None) };
        let (ends, marker) = (appending.head.ends(), appending.head.marker());
        let mut bytes = Vec::with_capacity(MARKER_BYTES);
        record::encode(&marker, archive.salt, &mut bytes);
        self.in_flight = true;
        Ok(Some(Commit {
            disk: Arc::clone(&archive.disk),
            gathered: appending.group.hand_out(marker),
            ends,
            sync: self.durability == Durability::Fsync || self.synced < self.sync_until,
            marker: (Arc::clone(&segment.file), u64::from(segment.end), bytes),
            prepare: appending.files.wanted_bytes(),
        }))
    }

    /// Takes over an ended commit. An error means that its group is not durable.
    pub(super) fn finish(
        &mut self,
        (commit, ended): (Commit, Ended),
        appending: &mut Appending,
        archive: &mut Archive,
        space: &mut Space,
    ) -> Result<()> {
        self.in_flight = false;
        if let Some(free_bytes) = ended.free_bytes {
            space.note(free_bytes);
        }
        match ended.result {
            Ok(()) => {
                self.count = self.count.wrapping_add(1);
                let bytes = commit.ends.position.0.saturating_sub(self.written.position.0);
                self.bytes = self.bytes.wrapping_add(bytes);
                self.durable = commit.ends;
                self.written = commit.ends;
                if commit.sync || !ended.sealed.is_empty() {
                    self.synced = commit.ends.position;
                }
            }
            Err(Error::Disk { operation: "write", full: true, .. }) => {
                space.run_out();
                appending.group.take_back(commit.gathered, self.written.position, &mut archive.tail, archive.salt);
                return ended.result;
            }
            Err(_) => {
                self.poisoned = true;
                return ended.result;
            }
        }
        for (number, trailer) in ended.sealed {
            if let Some(place) = archive.find(number) {
                archive.reindex(place, Indexed::Sealed(trailer));
            }
        }
        match ended.prepared {
            Some(Ok(prepared)) => appending.files.set_aside(prepared),
            Some(Err(_)) => space.run_out(),
            None => {}
        }
        self.trim_tail(&appending.group, archive);
        Ok(())
    }

    fn trim_tail(&self, group: &Group, archive: &mut Archive) {
        // What gathers now starts behind what was written.
        let filling = &archive.tail.filling;
        let keep = group.first_unwritten().unwrap_or((filling.segment, filling.start));
        archive.tail.trim(self.tail_bytes, keep);
    }
}
