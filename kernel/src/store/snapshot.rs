//! Taking the derived state down in pieces, while it changes (`docs/formats/log.md`, "Checkpoint").
//!
//! Owns: how far the walk is, and which checkpoints there are. Never: writes a file; [`super::checkpoint`] does, beside
//! the loop.
//!
//! Each map is walked in the order of its keys, so that the walk finds its place again whatever has come and gone. A
//! key that comes behind the walk is in the log behind the position where the walk began, from which it is replayed.
//! What a piece sees may not be durable yet: the checkpoint is used only once the log is durable up to the end of the
//! walk, and says where that was.

use super::checkpoint::{self, encode_beginning, encode_part, CheckpointWrite, Part, Recovered, UNKNOWN_NAME};
use super::derived::Derived;
use super::encoding::{narrow, wide, Encoder};
use super::head::Head;
use super::records::Records;
use crate::disk::Disk;
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
struct Walk {
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

/// The checkpoints of a log.
pub(super) struct Checkpoints {
    /// One that is taken down, or waits until what it holds is synced.
    walk: Option<Walk>,
    /// The number of the newest one.
    number: u64,
    /// The log position from which the newest one that was begun has the log replayed, ...
    begun: LogPosition,
    /// ... and the newest durable one.
    checkpointed: LogPosition,
}

impl Checkpoints {
    /// Those of a log that is opened. What its records come to by the newest one that is whole, and from which on the
    /// log is there, goes to `derived`.
    pub(super) fn load(
        disk: &dyn Disk,
        epoch: u128,
        is_usable: impl Fn(LogPosition) -> bool,
        derived: &mut Derived,
    ) -> Result<(Checkpoints, Option<Recovered>)> {
        let (number, recovered) = checkpoint::load(disk, epoch, is_usable, derived)?;
        let from = recovered.as_ref().map_or(LogPosition(0), |recovered| recovered.from);
        Ok((Checkpoints { walk: None, number, begun: from, checkpointed: from }, recovered))
    }

    /// The log position from which the newest durable one has the log replayed.
    pub(super) fn checkpointed(&self) -> LogPosition {
        self.checkpointed
    }

    /// The log position from which the newest one that was begun has the log replayed.
    pub(super) fn begun(&self) -> LogPosition {
        self.begun
    }

    /// What the newest one stands on is gone: none stands behind anything.
    pub(super) fn fall(&mut self) {
        self.checkpointed = LogPosition(0);
    }

    /// One begins: the log is to be replayed from here. One that was on its way is given up.
    pub(super) fn begin(&mut self, records: &mut Records, now: Timestamp) -> Result<()> {
        records.commits.check()?;
        records.appending.head.advance(now);
        self.number = self.number.saturating_add(1);
        self.begun = records.end_position();
        let next = Some(Next::Topics(1));
        self.walk = Some(Walk { from: self.begun, next, chunks: Vec::new(), end: Head::default() });
        Ok(())
    }

    /// Takes down some more of the state, for about `effort`; true when all of it is taken down, or nothing is to be.
    pub(super) fn piece(&mut self, records: &mut Records, effort: u64) -> bool {
        let Some(walk) = &mut self.walk else { return true };
        let mut left = effort;
        while left > 0 {
            let Some(next) = walk.next.take() else { break };
            let spent = walk.take_part(&next, records, left);
            records.archive.effort = records.archive.effort.wrapping_add(spent);
            left = left.saturating_sub(spent.max(1));
            if walk.next.is_none() {
                walk.end = records.appending.head;
                records.commits.sync_until(records.end_position());
            }
        }
        walk.next.is_none()
    }

    /// The one that was taken down, once the log is durable up to where it ends: to be written beside the loop.
    pub(super) fn write(&mut self, records: &Records) -> Option<CheckpointWrite> {
        let synced = records.commits.synced();
        let walk = self.walk.take_if(|walk| walk.next.is_none() && synced.0 >= walk.end.position)?;
        let mut chunks = vec![encode_beginning(records.appending.epoch(), walk.from, &walk.end)];
        chunks.extend(walk.chunks);
        Some(CheckpointWrite::new(Arc::clone(&records.archive.disk), self.number, walk.from, chunks))
    }

    /// All of it here and now: commits what there is and writes a checkpoint behind it.
    pub(super) fn take_whole(&mut self, records: &mut Records, now: Timestamp) -> Result<()> {
        self.begin(records, now)?;
        while !self.piece(records, u64::MAX) {}
        records.commit()?;
        let on_its_way = || Error::Invalid("a commit is on its way elsewhere".to_owned());
        let mut write = self.write(records).ok_or_else(on_its_way)?;
        let failed = write.run().err();
        self.written(&write, failed)
    }

    /// Takes over one that was written, or tells why it was not: the log is safe without it.
    pub(super) fn written(&mut self, write: &CheckpointWrite, failed: Option<Error>) -> Result<()> {
        match failed {
            None => self.checkpointed = self.checkpointed.max(write.from),
            Some(error) => {
                self.begun = self.checkpointed;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Walk {
    /// Takes down the next part, for about `effort`; how much it took.
    fn take_part(&mut self, next: &Next, records: &Records, effort: u64) -> u64 {
        let derived = &records.derived;
        let mut entries = Entries::default();
        let (part, next) = match next {
            Next::Topics(id) => (Part::Topics, take_topics(derived, *id, effort, &mut entries)),
            Next::Retained(after) => (Part::Retained, take_retained(derived, after.as_deref(), effort, &mut entries)),
            Next::Parties(after) => (Part::Parties, take_parties(derived, *after, effort, &mut entries)),
            Next::Keys(after) => (Part::Keys, take_keys(derived, after.as_deref(), effort, &mut entries)),
        };
        let mut beginning = encode_part(part, entries.count, records.end_position());
        if part == Part::Parties {
            beginning.put_u32(if let Some(Next::Parties(Some(Party(last)))) = next { last } else { u32::MAX });
        }
        self.chunks.push(beginning);
        self.chunks.push(entries.bytes);
        self.next = next;
        entries.effort
    }
}

fn take_topics(derived: &Derived, first: u32, effort: u64, entries: &mut Entries) -> Option<Next> {
    let mut id = first;
    while let Some(topic) = derived.dictionary.get(TopicId(id)) {
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

fn take_retained(derived: &Derived, after: Option<&[u8]>, effort: u64, entries: &mut Entries) -> Option<Next> {
    for (name, retained) in derived.retained.after(after) {
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

fn take_parties(derived: &Derived, after: Option<Party>, effort: u64, entries: &mut Entries) -> Option<Next> {
    let mut state_bytes = Vec::new();
    for (party, known) in derived.parties.after(after) {
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

fn take_keys(derived: &Derived, after: Option<&[u8]>, effort: u64, entries: &mut Entries) -> Option<Next> {
    for (key, number) in derived.in_force.after(after) {
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
