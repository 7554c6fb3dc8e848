//! Derived state on the disk, so that recovery is this plus the tail of the log (`docs/formats/log.md`, "Checkpoint").
//!
//! Owns: the file's format, and what is read of it at a start. How the state is taken down is in `snapshot`.
//!
//! Invariants:
//! 1. A checkpoint is written only after everything that it holds is synced, so it is never ahead of the log.
//! 2. It is there wholly or not at all: a temporary file, a sync, a rename, a sync of the directory.
//! 3. Its parts were taken one after the other while the log went on, all of them between two log positions. The log is
//!    replayed from the first: what a part has already is applied to it again. For topics, retained messages and keys
//!    in force the last record decides, so that changes nothing; delivery states pass over what they have already.

use super::derived::Derived;
use super::encoding::{index64, narrow, wide, Decoder, Encoder};
use super::head::Head;
use super::header::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};
use super::identity::read_all;
use super::nameless::Nameless;
use super::parties::PartyState;
use super::retained::Retained;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::flow::state::State;
use crate::ids::{LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::CHUNK_BYTES;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HFCHECK2";
/// As versions wrote it that took all of the state down at one go.
const WHOLE_MAGIC: &[u8; 8] = b"HFCHECKP";
pub(super) const UNKNOWN_NAME: u32 = u32::MAX;

/// Checkpoints that are kept: the newest, and one more in case that one is damaged.
const KEPT: usize = 2;

/// What a part of a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Topics,
    Retained,
    Parties,
    Keys,
}

/// What a checkpoint has of the log.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// What lies before is in it.
    pub(super) from: LogPosition,
    /// Where the log stood when its last part was taken: it was durable up to there when it was written, and some of
    /// what lies before is in it too.
    pub(super) head: Head,
    /// Delivery states: up to which party they were taken down where, in the order of parties.
    pub(super) taken: Vec<(Party, LogPosition)>,
}

impl Recovered {
    /// The log was durable up to here when it was written.
    pub(super) fn end(&self) -> LogPosition {
        LogPosition(self.head.position)
    }

    /// True if it has what the record at `here` says of a party's delivery state.
    pub(super) fn has(&self, party: Party, here: LogPosition) -> bool {
        let part = self.taken.partition_point(|(last, _)| *last < party);
        self.taken.get(part).is_some_and(|(_, taken_at)| here < *taken_at)
    }
}

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

/// What a checkpoint begins with: `from` is where replay begins, `head` where the log stood when its last part was
/// taken.
pub(super) fn encode_beginning(epoch: u128, from: LogPosition, head: &Head) -> Vec<u8> {
    let mut out = Vec::with_capacity(68);
    out.put(MAGIC);
    out.put_u32(FORMAT_VERSION);
    out.put_u128(epoch);
    out.put_u64(from.0);
    for number in [head.offset, head.control, head.position, head.time] {
        out.put_u64(number);
    }
    out
}

/// A checkpoint on its way to the disk, beside the loop. Each step writes and syncs a little, so that a large file does
/// not hold up the sync of a commit.
pub struct CheckpointWrite {
    disk: Arc<dyn Disk>,
    number: u64,
    pub(super) from: LogPosition,
    chunks: std::vec::IntoIter<Vec<u8>>,
    file: Option<Arc<dyn DiskFile>>,
    written: u64,
    checksum: u32,
    /// Checkpoints that this one makes superfluous, once it has its name.
    outlived: Option<Nameless>,
}

impl CheckpointWrite {
    pub(super) fn new(disk: Arc<dyn Disk>, number: u64, from: LogPosition, chunks: Vec<Vec<u8>>) -> CheckpointWrite {
        CheckpointWrite {
            disk,
            number,
            from,
            chunks: chunks.into_iter(),
            file: None,
            written: 0,
            checksum: 0,
            outlived: None,
        }
    }

    /// Writes the next chunks, a megabyte or one of them; false when the file has its name and is durable, and those
    /// that it makes superfluous have gone.
    pub(super) fn step(&mut self) -> Result<bool> {
        if let Some(outlived) = &mut self.outlived {
            return outlived.step(self.disk.as_ref());
        }
        let partial = format!("{}.partial", name_of(self.number));
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = self.disk.create(&partial, 0)?;
                self.file = Some(Arc::clone(&file));
                file
            }
        };
        let (begin, mut ended) = (self.written, true);
        for chunk in self.chunks.by_ref() {
            self.checksum = crate::checksum::append(self.checksum, &chunk);
            file.write_at(self.written, &chunk)?;
            self.written = self.written.saturating_add(wide(chunk.len()));
            if self.written.saturating_sub(begin) >= wide(CHUNK_BYTES) {
                ended = false;
                break;
            }
        }
        if ended {
            file.write_at(self.written, &self.checksum.to_le_bytes())?;
        }
        file.sync()?;
        if ended {
            self.disk.rename(&partial, &name_of(self.number))?;
            self.disk.sync_directory()?;
            self.outlived = Some(self.remove_outlived()?);
        }
        Ok(true)
    }

    fn remove_outlived(&self) -> Result<Nameless> {
        let mut outlived = Nameless::default();
        for old in numbers(&self.disk.list()?).into_iter().skip(KEPT) {
            let name = name_of(old);
            let file = self.disk.open(&name, true)?;
            outlived.remove(self.disk.as_ref(), &name, file)?;
        }
        Ok(outlived)
    }

    /// All steps here and now; nothing is left of it where one fails.
    pub(super) fn run(&mut self) -> Result<()> {
        let result = loop {
            match self.step() {
                Ok(true) => {}
                other => break other.map(|_| ()),
            }
        };
        if result.is_err() {
            self.undo();
        }
        result
    }

    /// Nothing is left of it.
    pub(super) fn undo(&self) {
        drop(self.disk.remove(&format!("{}.partial", name_of(self.number))));
    }
}

/// The number of the newest checkpoint, and what the newest one has that is whole and from which on the log is there,
/// which `derived` takes over.
pub(super) fn load(
    disk: &dyn Disk,
    epoch: u128,
    is_usable: impl Fn(LogPosition) -> bool,
    derived: &mut Derived,
) -> Result<(u64, Option<Recovered>)> {
    let numbers = numbers(&disk.list()?);
    let newest = numbers.first().copied().unwrap_or(0);
    for number in numbers {
        let name = name_of(number);
        let bytes = read_all(disk, &name, u64::MAX)?;
        let Some((mut body, whole)) = checked(&bytes, &name)? else { continue };
        if body.u128() != Some(epoch) {
            continue;
        }
        // One that was taken at one go has its log position behind offset and control number, once.
        let ahead = if whole { 16 } else { 0 };
        let from = Decoder::new(body.rest().get(ahead..).unwrap_or_default()).u64().map(LogPosition);
        if from.is_some_and(&is_usable) {
            // The checksum fits, so what does not decode was never written by this version.
            let unreadable =
                || Error::Damaged { file: name.clone(), position: 0, reason: "it cannot be decoded".to_owned() };
            let decoded = if whole { decode_whole(derived, &mut body) } else { decode_parts(derived, &mut body) };
            return Ok((newest, Some(decoded.ok_or_else(unreadable)?)));
        }
    }
    Ok((newest, None))
}

fn decode_parts(derived: &mut Derived, body: &mut Decoder<'_>) -> Option<Recovered> {
    let mut recovered = Recovered { from: LogPosition(body.u64()?), head: decode_head(body)?, ..Recovered::default() };
    let mut topics = 0_u64;
    while let Some(kind) = body.u8() {
        let (count, taken_at) = (u64::from(body.u32()?), LogPosition(body.u64()?));
        match kind {
            1 => {
                decode_topics(derived, body, topics, count)?;
                topics = topics.checked_add(count)?;
            }
            2 => decode_retained(derived, body, count, false)?,
            3 => {
                let last = Party(body.u32()?);
                decode_parties(derived, body, count)?;
                recovered.taken.push((last, taken_at));
            }
            4 => decode_keys(derived, body, count)?,
            _ => return None,
        }
    }
    Some(recovered)
}

fn decode_whole(derived: &mut Derived, body: &mut Decoder<'_>) -> Option<Recovered> {
    let head = decode_head(body)?;
    let count = body.u64()?;
    decode_topics(derived, body, 0, count)?;
    let count = body.u64()?;
    decode_retained(derived, body, count, true)?;
    let count = body.u64()?;
    decode_parties(derived, body, count)?;
    let count = body.u64()?;
    decode_keys(derived, body, count)?;
    Some(Recovered { from: LogPosition(head.position), head, taken: Vec::new() })
}

fn decode_topics(derived: &mut Derived, body: &mut Decoder<'_>, before: u64, count: u64) -> Option<()> {
    for number in 1..=count {
        let id = TopicId(u32::try_from(before.checked_add(number)?).ok()?);
        let size = body.u32()?;
        let name = if size == UNKNOWN_NAME { None } else { Some(body.take(index64(size.into()))?) };
        let (next_entry, declared_at) = (body.u64()?, LogPosition(body.u64()?));
        match name {
            Some(name) => derived.dictionary.declare(id, name, next_entry, declared_at),
            None => derived.dictionary.note_entry(id, next_entry.saturating_sub(1)),
        }
    }
    Some(())
}

fn decode_retained(derived: &mut Derived, body: &mut Decoder<'_>, count: u64, with_place: bool) -> Option<()> {
    for _ in 0..count {
        let topic = TopicId(body.u32()?);
        if with_place {
            body.u64()?;
        }
        let offset = Offset(body.u64()?);
        let expires_at = Some(Timestamp(body.u64()?)).filter(|expires_at| expires_at.0 != u64::MAX);
        if let Some(name) = derived.dictionary.shared_name(topic) {
            derived.retained.insert(name, Retained { topic, offset, expires_at });
        }
    }
    Some(())
}

fn decode_parties(derived: &mut Derived, body: &mut Decoder<'_>, count: u64) -> Option<()> {
    for _ in 0..count {
        let (party, full_number, size) = (Party(body.u32()?), body.u64()?, body.u32()?);
        let state = State::decode(body.take(index64(size.into()))?).ok()?;
        derived.parties.insert(party, PartyState { state, full_number, copied_for: 0 });
    }
    Some(())
}

fn decode_keys(derived: &mut Derived, body: &mut Decoder<'_>, count: u64) -> Option<()> {
    for _ in 0..count {
        let size = body.u32()?;
        let key = body.take(index64(size.into()))?;
        derived.in_force.insert(key, body.u64()?);
    }
    Some(())
}

fn decode_head(body: &mut Decoder<'_>) -> Option<Head> {
    Some(Head { offset: body.u64()?, control: body.u64()?, position: body.u64()?, time: body.u64()? })
}

/// The body of a checkpoint whose checksum fits, and whether it was taken at one go; `None` if it does not fit.
fn checked<'a>(bytes: &'a [u8], name: &str) -> Result<Option<(Decoder<'a>, bool)>> {
    let Some((checked, stored)) = bytes.len().checked_sub(4).and_then(|size| bytes.split_at_checked(size)) else {
        return Ok(None);
    };
    if Decoder::new(stored).u32() != Some(crate::checksum::of(checked)) {
        return Ok(None);
    }
    let mut body = Decoder::new(checked);
    let whole = match body.take(8) {
        Some(magic) if magic == MAGIC => false,
        Some(magic) if magic == WHOLE_MAGIC => true,
        _ => return Ok(None),
    };
    match body.u32() {
        Some(FORMAT_VERSION_OLDEST..=FORMAT_VERSION) => Ok(Some((body, whole))),
        Some(version) if version > FORMAT_VERSION => Err(Error::NewerFormat { file: name.to_owned(), version }),
        _ => Ok(None),
    }
}

/// What stands before the entries of a part: what they are, how many, and where the log stood when they were taken.
pub(super) fn encode_part(part: Part, count: usize, taken_at: LogPosition) -> Vec<u8> {
    let mut out = Vec::with_capacity(17);
    out.push(match part {
        Part::Topics => 1,
        Part::Retained => 2,
        Part::Parties => 3,
        Part::Keys => 4,
    });
    out.put_u32(narrow(count));
    out.put_u64(taken_at.0);
    out
}
