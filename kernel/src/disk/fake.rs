//! A disk in memory with seeded faults.
//!
//! Owns: what a file shows, what of it is on the medium, and what a power cut leaves. Never: a clock or true
//! randomness; the same seed and the same calls give the same faults.
//!
//! Invariants (docs/simulation.md says what they leave out):
//! 1. What was synced survives every crash, bit for bit (unless `flip_bit` was asked for).
//! 2. What was not synced survives in part: any subset of its sectors, each as it was after any of the writes that
//!    touched it, in any order across files. A sector is whole.
//! 3. Creations, renamings and removals survive as any subset of those since the last `sync_directory`, whatever
//!    became of the files' contents.
//! 4. What a sync that failed should have written is not on the medium afterwards, or in part, and no later sync brings
//!    it there: reads show it until the crash, and only writing it again saves it.

use super::{Disk, DiskFile};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What media write in one piece; the seed says which kind of medium a disk has.
const SECTORS_BYTES: (usize, usize) = (512, 4_096);

/// A simulated disk; clones share it.
#[derive(Debug, Clone)]
pub struct FakeDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct FakeFile {
    state: Arc<Mutex<State>>,
    name: String,
    identity: u64,
    life: u64,
    /// Of one that was opened for reading only.
    _hold: Option<Arc<()>>,
}

#[derive(Debug)]
struct State {
    random: u64,
    sector_bytes: usize,
    capacity_bytes: u64,
    life: u64,
    next_identity: u64,
    shown: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    operations: Vec<Operation>,
    contents: HashMap<u64, Content>,
    fail_next_sync: bool,
    writes_left: Option<u64>,
}

/// A change of the directory. It names the file, so that it can be applied without those before it.
#[derive(Debug, Clone)]
enum Operation {
    Create(String, u64),
    Rename(String, String, u64),
    Remove(String),
}

/// How much of something that was not synced a power cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fortune {
    Nothing,
    Everything,
    /// The first so many changes and no more.
    Prefix(usize),
    /// Each of its parts or not.
    Parts,
}

#[derive(Debug, Default)]
struct Content {
    shown: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Each who has opened it for reading only has another.
    hold: Arc<()>,
    /// What need not be in memory: from where to where.
    released: Vec<(u64, u64)>,
}

#[derive(Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Resize(usize),
}

impl FakeDisk {
    /// An empty disk.
    pub fn new(seed: u64, capacity_bytes: u64) -> FakeDisk {
        let mut state = State {
            random: seed,
            sector_bytes: SECTORS_BYTES.0,
            capacity_bytes,
            life: 0,
            next_identity: 1,
            shown: BTreeMap::new(),
            durable: BTreeMap::new(),
            operations: Vec::new(),
            contents: HashMap::new(),
            fail_next_sync: false,
            writes_left: None,
        };
        if state.draw() % 2 == 0 {
            state.sector_bytes = SECTORS_BYTES.1;
        }
        FakeDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Power is cut: a seeded choice of what was not synced is lost or torn; open files are dead.
    pub fn crash(&self) {
        lock(&self.state).crash();
    }

    /// The next sync fails. What it should have synced is lost with the next crash, unless it is written again.
    pub fn fail_next_sync(&self) {
        lock(&self.state).fail_next_sync = true;
    }

    /// After `writes` further writes every write fails, until the next crash.
    pub fn stop_after(&self, writes: u64) {
        lock(&self.state).writes_left = Some(writes);
    }

    /// What of a file need not be in memory, from where to where, as it was told.
    pub fn released(&self, file: &str) -> Vec<(u64, u64)> {
        let state = lock(&self.state);
        let content = state.shown.get(file).and_then(|identity| state.contents.get(identity));
        content.map(|content| content.released.clone()).unwrap_or_default()
    }

    /// Grows or shrinks the disk.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        lock(&self.state).capacity_bytes = capacity_bytes;
    }

    /// Damages one bit on the medium and in every cache.
    pub fn flip_bit(&self, file: &str, position: u64) {
        let mut state = lock(&self.state);
        let Some(identity) = state.shown.get(file).copied() else { return };
        let Some(content) = state.contents.get_mut(&identity) else { return };
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        for bytes in [&mut content.shown, &mut content.durable] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= 1;
            }
        }
    }
}

impl State {
    /// The next number of the seed (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn used_bytes(&self) -> u64 {
        let sizes = self.shown.values().filter_map(|identity| self.contents.get(identity));
        sizes.map(|content| u64::try_from(content.shown.len()).unwrap_or(u64::MAX)).sum()
    }

    fn crash(&mut self) {
        self.lose_entries();
        let mut identities: Vec<u64> = self.contents.keys().copied().collect();
        identities.sort_unstable();
        for identity in identities {
            self.tear(identity);
            if let Some(content) = self.contents.get_mut(&identity) {
                content.shown = content.durable.clone();
            }
        }
        self.contents.retain(|identity, _| self.durable.values().any(|kept| kept == identity));
        self.life = self.life.wrapping_add(1);
        self.fail_next_sync = false;
        self.writes_left = None;
    }

    /// Of the changes of the directory that were not synced, any are on the medium.
    fn lose_entries(&mut self) {
        let operations = std::mem::take(&mut self.operations);
        let fortune = self.fortune(operations.len());
        for (number, operation) in operations.into_iter().enumerate() {
            if self.is_kept(fortune, number) {
                apply(&mut self.durable, operation);
            }
        }
        self.shown = self.durable.clone();
    }

    /// What was written to a file and not synced reaches the medium wholly, in part or not at all.
    fn tear(&mut self, identity: u64) {
        let Some(content) = self.contents.get_mut(&identity).filter(|content| !content.pending.is_empty()) else {
            return;
        };
        let pending = std::mem::take(&mut content.pending);
        let mut medium = std::mem::take(&mut content.durable);
        let mut cached = medium.clone();
        let fortune = self.fortune(pending.len());
        for (number, change) in pending.iter().enumerate() {
            change_bytes(&mut cached, change);
            if self.is_kept(fortune, number) {
                self.write_back(change, &cached, &mut medium, fortune != Fortune::Parts);
            }
        }
        if let Some(content) = self.contents.get_mut(&identity) {
            content.durable = medium;
        }
    }

    /// Sectors that a change has touched go to the medium as they are then.
    fn write_back(&mut self, change: &Pending, cached: &[u8], medium: &mut Vec<u8>, whole: bool) {
        let (position, size) = match change {
            Pending::Resize(_) => return change_bytes(medium, change),
            Pending::Write(position, bytes) => (*position, bytes.len()),
        };
        let end = position.saturating_add(size);
        let first = position - position % self.sector_bytes;
        let sectors = end.saturating_sub(first).div_ceil(self.sector_bytes);
        let fortune = if whole { Fortune::Everything } else { self.fortune(sectors) };
        for (number, start) in (first..end).step_by(self.sector_bytes).enumerate() {
            let until = start.saturating_add(self.sector_bytes).min(cached.len());
            if let Some(sector) = cached.get(start..until).filter(|_| self.is_kept(fortune, number)) {
                change_bytes(medium, &Pending::Write(start, sector.to_vec()));
            }
        }
    }

    /// What becomes of `count` changes.
    fn fortune(&mut self, count: usize) -> Fortune {
        match self.draw() % 4 {
            0 => Fortune::Nothing,
            1 => Fortune::Everything,
            2 => {
                let kept = u64::try_from(count).unwrap_or(0).saturating_add(1);
                Fortune::Prefix(usize::try_from(self.draw() % kept).unwrap_or(0))
            }
            _ => Fortune::Parts,
        }
    }

    fn is_kept(&mut self, fortune: Fortune, number: usize) -> bool {
        match fortune {
            Fortune::Nothing => false,
            Fortune::Everything => true,
            Fortune::Prefix(kept) => number < kept,
            Fortune::Parts => self.draw() % 2 == 0,
        }
    }

    fn may_write(&mut self, name: &str) -> Result<()> {
        match &mut self.writes_left {
            Some(0) => Err(failure("write", name, "the simulated disk has stopped", false)),
            Some(left) => {
                *left = left.saturating_sub(1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disk for FakeDisk {
    fn list(&self) -> Result<Vec<String>> {
        Ok(lock(&self.state).shown.keys().cloned().collect())
    }

    fn create(&self, name: &str, reserved: u64) -> Result<Arc<dyn DiskFile>> {
        let mut state = lock(&self.state);
        state.may_write(name)?;
        if state.shown.contains_key(name) {
            return Err(failure("create", name, "the file exists", false));
        }
        if state.used_bytes().saturating_add(reserved) > state.capacity_bytes {
            return Err(failure("reserve", name, "no space left", true));
        }
        let identity = state.next_identity;
        state.next_identity = identity.wrapping_add(1);
        let size = usize::try_from(reserved).unwrap_or(usize::MAX);
        let pending = if size > 0 { vec![Pending::Resize(size)] } else { Vec::new() };
        state.contents.insert(identity, Content { shown: vec![0; size], pending, ..Content::default() });
        state.shown.insert(name.to_owned(), identity);
        state.operations.push(Operation::Create(name.to_owned(), identity));
        let life = state.life;
        let state = Arc::clone(&self.state);
        Ok(Arc::new(FakeFile { state, name: name.to_owned(), identity, life, _hold: None }))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        let state = lock(&self.state);
        let identity = state.shown.get(name).copied();
        let identity = identity.ok_or_else(|| failure("open", name, "no such file", false))?;
        let content = state.contents.get(&identity).filter(|_| !writable);
        let (_hold, life) = (content.map(|content| Arc::clone(&content.hold)), state.life);
        let state = Arc::clone(&self.state);
        Ok(Arc::new(FakeFile { state, name: name.to_owned(), identity, life, _hold }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = lock(&self.state);
        state.may_write(from)?;
        let identity = state.shown.get(from).copied();
        let identity = identity.ok_or_else(|| failure("rename", from, "no such file", false))?;
        let operation = Operation::Rename(from.to_owned(), to.to_owned(), identity);
        apply(&mut state.shown, operation.clone());
        state.operations.push(operation);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = lock(&self.state);
        state.may_write(name)?;
        if !state.shown.contains_key(name) {
            return Err(failure("remove", name, "no such file", false));
        }
        let operation = Operation::Remove(name.to_owned());
        apply(&mut state.shown, operation.clone());
        state.operations.push(operation);
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.may_write("directory")?;
        if std::mem::take(&mut state.fail_next_sync) {
            return Err(failure("sync", "directory", "the simulated sync failed", false));
        }
        let operations = std::mem::take(&mut state.operations);
        for operation in operations {
            apply(&mut state.durable, operation);
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64> {
        let state = lock(&self.state);
        Ok(state.capacity_bytes.saturating_sub(state.used_bytes()))
    }
}

impl FakeFile {
    fn with<T>(&self, operation: &'static str, action: impl FnOnce(&mut Content) -> T) -> Result<T> {
        let mut state = lock(&self.state);
        if state.life != self.life {
            return Err(failure(operation, &self.name, "the simulated power was cut", false));
        }
        let content = state.contents.get_mut(&self.identity);
        content.map(action).ok_or_else(|| failure(operation, &self.name, "no such file", false))
    }
}

impl DiskFile for FakeFile {
    fn write_at(&self, position: u64, bytes: &[u8]) -> Result<()> {
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        let end = at.saturating_add(bytes.len());
        let size = self.with("write", |content| content.shown.len())?;
        let mut state = lock(&self.state);
        state.may_write(&self.name)?;
        let growth = u64::try_from(end.saturating_sub(size)).unwrap_or(u64::MAX);
        if growth > 0 && state.used_bytes().saturating_add(growth) > state.capacity_bytes {
            return Err(failure("write", &self.name, "no space left", true));
        }
        drop(state);
        self.with("write", |content| {
            let change = Pending::Write(at, bytes.to_vec());
            change_bytes(&mut content.shown, &change);
            content.pending.push(change);
        })
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> Result<usize> {
        self.with("read", |content| {
            let stored = content.shown.get(usize::try_from(position).unwrap_or(usize::MAX)..).unwrap_or_default();
            let count = stored.len().min(into.len());
            if let (Some(target), Some(source)) = (into.get_mut(..count), stored.get(..count)) {
                target.copy_from_slice(source);
            }
            count
        })
    }

    fn sync(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.may_write(&self.name)?;
        if state.life == self.life && std::mem::take(&mut state.fail_next_sync) {
            state.tear(self.identity);
            return Err(failure("sync", &self.name, "the simulated sync failed", false));
        }
        drop(state);
        self.with("sync", |content| {
            for change in std::mem::take(&mut content.pending) {
                change_bytes(&mut content.durable, &change);
            }
        })
    }

    fn size(&self) -> Result<u64> {
        self.with("stat", |content| u64::try_from(content.shown.len()).unwrap_or(u64::MAX))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        lock(&self.state).may_write(&self.name)?;
        self.with("truncate", |content| {
            let change = Pending::Resize(usize::try_from(size).unwrap_or(usize::MAX));
            change_bytes(&mut content.shown, &change);
            content.pending.push(change);
        })
    }

    fn release(&self, position: u64, bytes: u64) {
        let end = position.saturating_add(bytes);
        drop(self.with("release", |content| content.released.push((position, end))));
    }

    fn is_held(&self) -> bool {
        lock(&self.state).contents.get(&self.identity).is_some_and(|content| Arc::strong_count(&content.hold) > 1)
    }
}

fn apply(directory: &mut BTreeMap<String, u64>, operation: Operation) {
    match operation {
        Operation::Create(name, identity) => {
            directory.insert(name, identity);
        }
        Operation::Rename(from, to, identity) => {
            if directory.get(&from) == Some(&identity) {
                directory.remove(&from);
            }
            directory.insert(to, identity);
        }
        Operation::Remove(name) => {
            directory.remove(&name);
        }
    }
}

fn change_bytes(bytes: &mut Vec<u8>, change: &Pending) {
    match change {
        // Zeros that nobody looks at cost nothing where they come from the system.
        Pending::Resize(size) if bytes.is_empty() => *bytes = vec![0; *size],
        Pending::Resize(size) => bytes.resize(*size, 0),
        Pending::Write(position, written) => {
            let end = position.saturating_add(written.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            if let Some(target) = bytes.get_mut(*position..end) {
                target.copy_from_slice(written);
            }
        }
    }
}

fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failure(operation: &'static str, file: &str, reason: &str, full: bool) -> Error {
    Error::Disk { operation, file: file.to_owned(), reason: reason.to_owned(), full }
}
