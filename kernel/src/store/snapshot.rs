//! Taking the derived state down in pieces, while it changes (`docs/formats/log.md`, "Checkpoint").
//!
//! Owns: how far the walk is. Never: writes a file; [`super::checkpoint`] does, beside the loop.
//!
//! Each map is walked in the order of its keys, so that the walk finds its place again whatever has come and gone. A
//! key that comes behind the walk is in the log behind the position where the walk began, from which it is replayed.
//! What a piece sees may not be durable yet: the checkpoint is used only once the log is durable up to the end of the
//! walk, and says where that was.

use super::checkpoint::{encode_beginning, encode_part, CheckpointWrite, Part, UNKNOWN_NAME};
use super::encoding::{narrow, wide, Sink};
use super::job::Job;
use super::log::{Head, Log};
use crate::error::{Error, Result};
use crate::ids::{LogPosition, Party, Timestamp, TopicId};
use std::sync::Arc;

/// Encoded bytes that cost as much as looking at one record.
const BYTES_PER_EFFORT: u64 = 64;

/// Where the walk goes on.
enum Next {
    Topics(u32),
    Retained(Option<Arc<[u8]>>),
    Parties(Option<Party>),
    Keys(Option<Box<[u8]>>),
}

/// A walk on its way.
pub(super) struct Walk {
    from: LogPosition,
    next: Option<Next>,
    /// Parts without what the file begins with: a few at most are as large as a piece.
    chunks: Vec<Vec<u8>>,
    /// Where the log stood when the last part was taken.
    end: Head,
}

/// The entries of one part.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    count: usize,
    effort: u64,
}

impl Entries {
    /// One more, of which `before` bytes were there before; true while there is room for another.
    fn note(&mut self, before: usize, limit: u64) -> bool {
        self.count = self.count.saturating_add(1);
        let bytes = wide(self.bytes.len().saturating_sub(before));
        self.effort = self.effort.saturating_add(1).saturating_add(bytes / BYTES_PER_EFFORT);
        self.effort < limit
    }
}

impl Log {
    /// A checkpoint begins: the log is to be replayed from here. One that was on its way is given up.
    pub fn begin_checkpoint(&mut self, now: Timestamp) -> Result<()> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.advance(now);
        self.checkpoint_number = self.checkpoint_number.saturating_add(1);
        self.checkpoint_begun = self.end_position();
        let next = Some(Next::Topics(1));
        self.walk = Some(Walk { from: self.checkpoint_begun, next, chunks: Vec::new(), end: Head::default() });
        Ok(())
    }

    /// Takes down some more of the state, for about `effort`; true when all of it is taken down, or nothing is to be.
    pub fn checkpoint_piece(&mut self, effort: u64) -> bool {
        let Some(mut walk) = self.walk.take() else { return true };
        let mut left = effort;
        while left > 0 {
            let Some(next) = walk.next.take() else { break };
            let mut entries = Entries::default();
            let mut last = None;
            let (part, next) = match next {
                Next::Topics(id) => (Part::Topics, self.take_topics(id, left, &mut entries)),
                Next::Retained(after) => (Part::Retained, self.take_retained(after, left, &mut entries)),
                Next::Parties(after) => {
                    let next = self.take_parties(after, left, &mut entries);
                    last = Some(if let Some(Next::Parties(Some(party))) = next { party } else { Party(u32::MAX) });
                    (Part::Parties, next)
                }
                Next::Keys(after) => (Part::Keys, self.take_keys(after, left, &mut entries)),
            };
            self.archive.effort = self.archive.effort.wrapping_add(entries.effort);
            left = left.saturating_sub(entries.effort.max(1));
            let mut beginning = encode_part(part, entries.count, self.end_position());
            if let Some(last) = last {
                beginning.put_u32(last.0);
            }
            walk.chunks.push(beginning);
            walk.chunks.push(entries.bytes);
            walk.next = next;
            if walk.next.is_none() {
                walk.end = self.head;
                self.sync_until = self.end_position();
                self.walk = Some(walk);
                return true;
            }
        }
        let all = walk.next.is_none();
        self.walk = Some(walk);
        all
    }

    /// The checkpoint that was taken down, once the log is durable up to where it ends: to be written beside the loop
    /// and handed back to `finish`. `None` before that; a commit brings it about.
    pub fn checkpoint_job(&mut self) -> Option<Job> {
        let synced = self.synced;
        let walk = self.walk.take_if(|walk| walk.next.is_none() && synced.0 >= walk.end.position)?;
        let mut chunks = vec![encode_beginning(self.epoch, walk.from, &walk.end)];
        chunks.extend(walk.chunks);
        let write = CheckpointWrite::new(Arc::clone(&self.disk), self.checkpoint_number, walk.from, chunks);
        Some(Job::checkpoint(write))
    }

    /// All of it here and now: commits what there is and writes a checkpoint behind it.
    pub fn checkpoint(&mut self, now: Timestamp) -> Result<()> {
        self.begin_checkpoint(now)?;
        while !self.checkpoint_piece(u64::MAX) {}
        self.commit()?;
        let on_its_way = || Error::Invalid("a commit is on its way elsewhere".to_owned());
        let mut job = self.checkpoint_job().ok_or_else(on_its_way)?;
        while job.step() {}
        self.finish(job).map(|_| ())
    }

    /// Bytes appended since the last checkpoint began.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.head.position.saturating_sub(self.checkpoint_begun.0)
    }

    /// The log position from which the newest durable checkpoint has the log replayed.
    pub fn checkpointed(&self) -> LogPosition {
        self.checkpointed
    }

    /// Takes over a checkpoint that was written, or tells why it was not: the log is safe without it.
    pub(super) fn checkpoint_written(&mut self, write: &CheckpointWrite, failed: Option<Error>) -> Result<()> {
        match failed {
            None => self.checkpointed = self.checkpointed.max(write.from),
            Some(error) => {
                self.checkpoint_begun = self.checkpointed;
                return Err(error);
            }
        }
        Ok(())
    }

    fn take_topics(&self, first: u32, effort: u64, entries: &mut Entries) -> Option<Next> {
        let mut id = first;
        while let Some(topic) = self.dictionary.get(TopicId(id)) {
            let (before, out) = (entries.bytes.len(), &mut entries.bytes);
            out.put_u32(topic.name.as_ref().map_or(UNKNOWN_NAME, |name| narrow(name.len())));
            out.put(topic.name.as_deref().unwrap_or_default());
            out.put_u64(topic.next_entry);
            out.put_u64(topic.declared_at.0);
            id = id.saturating_add(1);
            if !entries.note(before, effort) {
                return Some(Next::Topics(id));
            }
        }
        Some(Next::Retained(None))
    }

    fn take_retained(&self, after: Option<Arc<[u8]>>, effort: u64, entries: &mut Entries) -> Option<Next> {
        for (name, retained) in self.retained.after(after.as_deref()) {
            let (before, out) = (entries.bytes.len(), &mut entries.bytes);
            out.put_u32(retained.topic.0);
            out.put_u64(retained.offset.0);
            out.put_u64(retained.expires_at.map_or(u64::MAX, |expires_at| expires_at.0));
            if !entries.note(before, effort) {
                return Some(Next::Retained(Some(Arc::clone(name))));
            }
        }
        Some(Next::Parties(None))
    }

    fn take_parties(&self, after: Option<Party>, effort: u64, entries: &mut Entries) -> Option<Next> {
        let mut state_bytes = Vec::new();
        for (party, known) in self.parties.after(after) {
            state_bytes.clear();
            known.state.encode(&mut state_bytes);
            let (before, out) = (entries.bytes.len(), &mut entries.bytes);
            out.put_u32(party.0);
            out.put_u64(known.full_number);
            out.put_u32(narrow(state_bytes.len()));
            out.put(&state_bytes);
            if !entries.note(before, effort) {
                return Some(Next::Parties(Some(party)));
            }
        }
        Some(Next::Keys(None))
    }

    fn take_keys(&self, after: Option<Box<[u8]>>, effort: u64, entries: &mut Entries) -> Option<Next> {
        for (key, number) in self.in_force.after(after.as_deref()) {
            let (before, out) = (entries.bytes.len(), &mut entries.bytes);
            out.put_u32(narrow(key.len()));
            out.put(key);
            out.put_u64(number);
            if !entries.note(before, effort) {
                return Some(Next::Keys(Some(key.into())));
            }
        }
        None
    }
}
