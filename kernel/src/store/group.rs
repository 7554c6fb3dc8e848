//! The group of records that gathers for the next commit, as steps of writing.
//!
//! Invariants:
//! 1. The first record of a group is a marker that vouches for everything before the group.
//! 2. Of a group that could not be written nothing is lost: what has gathered since becomes part of it, and no marker
//!    vouches for it before it is durable.

use super::encoding::narrow;
use super::footer::Trailer;
use super::record::{self, Kind, Record, MARKER_BYTES};
use super::seal::Seal;
use super::tail::{Chunk, Tail};
use crate::disk::DiskFile;
use crate::error::Result;
use crate::ids::{LogPosition, TopicId};
use std::sync::Arc;

/// One step of a commit.
pub(super) enum Work {
    Header { file: Arc<dyn DiskFile>, bytes: Vec<u8> },
    Write { file: Arc<dyn DiskFile>, chunk: Arc<Chunk> },
    Seal { seal: Seal, names: Vec<(TopicId, Arc<[u8]>)> },
}

impl Work {
    /// What it is done to.
    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        match self {
            Work::Header { file, .. } | Work::Write { file, .. } => file,
            Work::Seal { seal, .. } => &seal.file,
        }
    }

    /// Does it, without a sync. The number of the segment that was sealed, and its trailer, if one was.
    pub(super) fn run(&self) -> Result<Option<(u32, Trailer)>> {
        match self {
            Work::Header { file, bytes } => file.write_at(0, bytes)?,
            Work::Write { file, chunk } => file.write_at(u64::from(chunk.start), &chunk.bytes)?,
            Work::Seal { seal, names } => return Ok(Some((seal.number, seal.write(names)?))),
        }
        Ok(None)
    }

    fn chunk_mut(&mut self) -> Option<&mut Arc<Chunk>> {
        match self {
            Work::Write { chunk, .. } => Some(chunk),
            Work::Header { .. } | Work::Seal { .. } => None,
        }
    }
}

/// A group that gathers no more.
pub(super) struct Gathered {
    /// In this order.
    pub(super) work: Vec<Work>,
    /// Files got their names for it.
    pub(super) sync_directory: bool,
}

/// The group that gathers.
pub(super) struct Group {
    gathered: Gathered,
    /// Its first record.
    marker: Record<'static>,
    has_begun: bool,
}

impl Group {
    /// Nothing has gathered.
    pub(super) fn new() -> Group {
        let gathered = Gathered { work: Vec::new(), sync_directory: false };
        Group { gathered, marker: Record::plain(Kind::Marker, &[]), has_begun: false }
    }

    /// Bytes that come before its next record.
    pub(super) fn beginning_bytes(&self) -> u32 {
        if self.has_begun {
            0
        } else {
            narrow(MARKER_BYTES)
        }
    }

    /// Its next record is appended; the marker that has to come first if it is the first one.
    pub(super) fn begin(&mut self) -> Option<Record<'static>> {
        if self.has_begun {
            return None;
        }
        self.has_begun = true;
        Some(self.marker)
    }

    /// It needs this step.
    pub(super) fn add(&mut self, work: Work) {
        self.gathered.work.push(work);
    }

    /// A file got its name for it.
    pub(super) fn add_name(&mut self) {
        self.gathered.sync_directory = true;
    }

    /// True if no step is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.work.is_empty()
    }

    /// The first bytes that are frozen and not handed out (segment, position).
    pub(super) fn first_unwritten(&self) -> Option<(u32, u32)> {
        self.gathered.work.iter().find_map(|work| match work {
            Work::Write { chunk, .. } => Some((chunk.segment, chunk.start)),
            Work::Header { .. } | Work::Seal { .. } => None,
        })
    }

    /// What the group begins with, or began with.
    pub(super) fn marker(&self) -> &Record<'static> {
        &self.marker
    }

    /// The next group begins with this marker.
    pub(super) fn will_begin_with(&mut self, marker: Record<'static>) {
        self.marker = marker;
        self.has_begun = false;
    }

    /// What has gathered is to be written; the next group begins with `marker`.
    pub(super) fn hand_out(&mut self, marker: Record<'static>) -> Gathered {
        self.will_begin_with(marker);
        Gathered {
            work: std::mem::take(&mut self.gathered.work),
            sync_directory: std::mem::take(&mut self.gathered.sync_directory),
        }
    }

    /// There was no space for what was handed out: it is tried again, together with what has gathered since. Its marker
    /// vouches for what is `durable`.
    pub(super) fn take_back(&mut self, failed: Gathered, durable: LogPosition, tail: &mut Tail, salt: u32) {
        self.gathered.sync_directory |= failed.sync_directory;
        let mut gathered = std::mem::replace(&mut self.gathered.work, failed.work);
        self.marker.entry = durable.0;
        if self.has_begun {
            self.revoke_marker(&mut gathered, tail, salt);
        }
        self.gathered.work.extend(gathered);
        // Nothing may vouch for the group before it is durable: the groups become one, begun by the older marker.
        self.has_begun = true;
    }

    /// The marker of what has gathered since vouches for a group that failed: it is made to vouch for no more than what
    /// is durable.
    fn revoke_marker(&self, gathered: &mut [Work], tail: &mut Tail, salt: u32) {
        let mut bytes = Vec::with_capacity(MARKER_BYTES);
        record::encode(&self.marker, salt, &mut bytes);
        match gathered.iter_mut().find_map(Work::chunk_mut) {
            Some(chunk) => {
                let mut copy = chunk.bytes.clone();
                put_at_start(&mut copy, &bytes);
                *chunk = Arc::new(Chunk { segment: chunk.segment, start: chunk.start, bytes: copy });
                tail.replace(chunk);
            }
            None => put_at_start(&mut tail.filling.bytes, &bytes),
        }
    }
}

fn put_at_start(target: &mut [u8], bytes: &[u8]) {
    if let Some(start) = target.get_mut(..bytes.len()) {
        start.copy_from_slice(bytes);
    }
}
