//! Derived state on the disk, so that recovery is this plus the tail of the log (`docs/formats/log.md`, "Checkpoint").
//!
//! Invariants:
//! 1. A checkpoint is written only after everything that it stands on is synced, so it is never ahead of the log.
//! 2. It is there wholly or not at all: a temporary file, a sync, a rename, a sync of the directory.

use super::encoding::{index64, narrow, wide, Sink, Source};
use super::header::FORMAT_VERSION;
use super::identity::{read_all, write_whole};
use super::log::{Head, Log};
use super::parties::PartyState;
use super::retained::Retained;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::flow::state::State;
use crate::ids::{Location, LogPosition, Offset, Party, Timestamp, TopicId};

const MAGIC: &[u8; 8] = b"HFCHECKP";
const UNKNOWN_NAME: u32 = u32::MAX;

/// Checkpoints that are kept: the newest, and one more in case that one is damaged.
const KEPT: usize = 2;

/// The name of a checkpoint's file.
fn name_of(number: u64) -> String {
    format!("checkpoint-{number:010}")
}

/// The numbers of all checkpoints, newest first.
pub(super) fn numbers(names: &[String]) -> Vec<u64> {
    let parsed = names.iter().filter_map(|name| {
        let number = name.strip_prefix("checkpoint-")?.parse().ok()?;
        (name_of(number) == *name).then_some(number)
    });
    let mut numbers: Vec<u64> = parsed.collect();
    numbers.sort_unstable_by(|first, second| second.cmp(first));
    numbers
}

/// Writes a checkpoint durably and removes old ones.
pub(super) fn write(disk: &dyn Disk, number: u64, bytes: &[u8]) -> Result<()> {
    write_whole(disk, &name_of(number), bytes)?;
    for old in numbers(&disk.list()?).into_iter().skip(KEPT) {
        disk.remove(&name_of(old))?;
    }
    Ok(())
}

impl Log {
    /// Has the derived state written by the next commit.
    pub fn checkpoint(&mut self, now: Timestamp) -> Result<()> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.advance(now);
        self.checkpoint_number = self.checkpoint_number.saturating_add(1);
        self.checkpoint_position = self.head.position;
        self.pending_checkpoint = Some(self.encode_checkpoint());
        Ok(())
    }

    /// Bytes appended since the last checkpoint.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.head.position.saturating_sub(self.checkpoint_position)
    }

    fn encode_checkpoint(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u128(self.epoch);
        out.put_u64(self.head.offset);
        out.put_u64(self.head.control);
        out.put_u64(self.head.position);
        out.put_u64(self.head.time);
        out.put_u64(wide(self.dictionary.len()));
        for (_, topic) in self.dictionary.topics() {
            out.put_u32(topic.name.as_ref().map_or(UNKNOWN_NAME, |name| narrow(name.len())));
            out.put(topic.name.as_deref().unwrap_or_default());
            out.put_u64(topic.next_entry);
            out.put_u64(topic.declared_at.0);
        }
        out.put_u64(wide(self.retained.len()));
        for retained in self.retained.iter() {
            out.put_u32(retained.topic.0);
            out.put_u32(retained.location.segment);
            out.put_u32(retained.location.position);
            out.put_u64(retained.offset.0);
            out.put_u64(retained.expires_at.map_or(u64::MAX, |expires_at| expires_at.0));
        }
        self.encode_controls(&mut out);
        let checksum = crc32c::crc32c(&out);
        out.put_u32(checksum);
        out
    }

    fn encode_controls(&self, out: &mut Vec<u8>) {
        out.put_u64(wide(self.parties.len()));
        let mut state_bytes = Vec::new();
        for (party, state) in self.parties.iter() {
            state_bytes.clear();
            state.state.encode(&mut state_bytes);
            out.put_u32(party.0);
            out.put_u64(state.full_number);
            out.put_u32(narrow(state_bytes.len()));
            out.put(&state_bytes);
        }
        out.put_u64(wide(self.in_force.len()));
        for (key, number) in self.in_force.iter() {
            out.put_u32(narrow(key.len()));
            out.put(key);
            out.put_u64(number);
        }
    }

    /// Takes over the newest whole checkpoint of this log that `is_usable` (by its log position), and returns that.
    pub(super) fn load_checkpoint(
        &mut self,
        names: &[String],
        is_usable: impl Fn(LogPosition) -> bool,
    ) -> Result<Option<LogPosition>> {
        let numbers = numbers(names);
        self.checkpoint_number = numbers.first().copied().unwrap_or(0);
        for number in numbers {
            let name = name_of(number);
            let bytes = read_all(self.disk.as_ref(), &name, u64::MAX)?;
            let Some(mut body) = checked(&bytes, &name)? else { continue };
            if body.u128() != Some(self.epoch) {
                continue;
            }
            let position = Source::new(body.rest().get(16..).unwrap_or_default()).u64().map(LogPosition);
            if let Some(position) = position.filter(|position| is_usable(*position)) {
                // The checksum fits, so what does not decode was never written by this version.
                let unreadable =
                    || Error::Damaged { file: name.clone(), position: 0, reason: "it cannot be decoded".to_owned() };
                self.decode_checkpoint(&mut body).ok_or_else(unreadable)?;
                self.checkpoint_position = position.0;
                self.checkpointed = position;
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    fn decode_checkpoint(&mut self, body: &mut Source<'_>) -> Option<()> {
        self.head = Head { offset: body.u64()?, control: body.u64()?, position: body.u64()?, time: body.u64()? };
        let topics = body.u64()?;
        for number in 1..=topics {
            let id = TopicId(u32::try_from(number).ok()?);
            let size = body.u32()?;
            let name = if size == UNKNOWN_NAME { None } else { Some(body.take(index64(size.into()))?) };
            let (next_entry, declared_at) = (body.u64()?, LogPosition(body.u64()?));
            match name {
                Some(name) => self.dictionary.declare(id, name, next_entry, declared_at),
                None => self.dictionary.note_entry(id, next_entry.saturating_sub(1)),
            }
        }
        let retained = body.u64()?;
        for _ in 0..retained {
            let topic = TopicId(body.u32()?);
            let location = Location { segment: body.u32()?, position: body.u32()? };
            let offset = Offset(body.u64()?);
            let expires_at = Some(Timestamp(body.u64()?)).filter(|expires_at| expires_at.0 != u64::MAX);
            if let Some(name) = self.dictionary.shared_name(topic) {
                self.retained.insert(name, Retained { topic, location, offset, expires_at });
            }
        }
        let parties = body.u64()?;
        for _ in 0..parties {
            let (party, full_number, size) = (Party(body.u32()?), body.u64()?, body.u32()?);
            let state = State::decode(body.take(index64(size.into()))?).ok()?;
            self.parties.insert(party, PartyState { state, full_number });
        }
        let keys = body.u64()?;
        for _ in 0..keys {
            let size = body.u32()?;
            let key = body.take(index64(size.into()))?;
            self.in_force.insert(key, body.u64()?);
        }
        Some(())
    }
}

/// The body of a checkpoint whose checksum fits; `None` if it does not.
pub(super) fn checked<'a>(bytes: &'a [u8], name: &str) -> Result<Option<Source<'a>>> {
    let Some((checked, stored)) = bytes.len().checked_sub(4).and_then(|size| bytes.split_at_checked(size)) else {
        return Ok(None);
    };
    if Source::new(stored).u32() != Some(crc32c::crc32c(checked)) {
        return Ok(None);
    }
    let mut body = Source::new(checked);
    if body.take(8) != Some(MAGIC) {
        return Ok(None);
    }
    match body.u32() {
        Some(FORMAT_VERSION) => Ok(Some(body)),
        Some(version) if version > FORMAT_VERSION => Err(Error::NewerFormat { file: name.to_owned(), version }),
        _ => Ok(None),
    }
}
