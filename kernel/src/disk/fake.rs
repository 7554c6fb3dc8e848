//! A disk in memory with seeded faults.
//!
//! Owns: what a file shows, what of it is on the medium, and what a power cut leaves. Never: a clock or true
//! randomness; the same seed and the same calls give the same faults.
//!
//! Invariants:
//! 1. What was synced survives every crash, bit for bit (unless `flip_bit` was asked for).
//! 2. What was not synced survives in part: any subset of its 512-byte sectors, in any order.
//! 3. Directory operations survive as a prefix of those since the last `sync_directory`.

use super::{Disk, DiskFile};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a medium writes in one piece.
const SECTOR_BYTES: usize = 512;

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
}

#[derive(Debug)]
struct State {
    random: u64,
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

#[derive(Debug, Clone)]
enum Operation {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Default)]
struct Content {
    shown: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Resize(usize),
}

impl FakeDisk {
    /// An empty disk.
    pub fn new(seed: u64, capacity_bytes: u64) -> FakeDisk {
        let state = State {
            random: seed,
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
        FakeDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Power is cut: a seeded choice of what was not synced is lost or torn; open files are dead.
    pub fn crash(&self) {
        lock(&self.state).crash();
    }

    /// The next sync fails, and what it should have synced stays unsynced.
    pub fn fail_next_sync(&self) {
        lock(&self.state).fail_next_sync = true;
    }

    /// After `writes` further writes every write fails, until the next crash.
    pub fn stop_after(&self, writes: u64) {
        lock(&self.state).writes_left = Some(writes);
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
        let operations = std::mem::take(&mut self.operations);
        let kept = u64::try_from(operations.len()).unwrap_or(0).saturating_add(1);
        let kept = usize::try_from(self.draw() % kept).unwrap_or(0);
        for operation in operations.into_iter().take(kept) {
            apply(&mut self.durable, operation);
        }
        self.shown = self.durable.clone();
        let mut identities: Vec<u64> = self.contents.keys().copied().collect();
        identities.sort_unstable();
        for identity in identities {
            let pending = self.contents.get_mut(&identity).map(|content| std::mem::take(&mut content.pending));
            for change in pending.unwrap_or_default() {
                self.tear(identity, &change);
            }
            if let Some(content) = self.contents.get_mut(&identity) {
                content.shown = content.durable.clone();
            }
        }
        self.contents.retain(|identity, _| self.durable.values().any(|kept| kept == identity));
        self.life = self.life.wrapping_add(1);
        self.fail_next_sync = false;
        self.writes_left = None;
    }

    /// A change that was not synced reaches the medium wholly, in part or not at all.
    fn tear(&mut self, identity: u64, change: &Pending) {
        let fortune = self.draw() % 3;
        if fortune == 0 {
            return;
        }
        let mut sectors = Vec::new();
        match change {
            Pending::Resize(size) => sectors.push(Pending::Resize(*size)),
            Pending::Write(position, bytes) => {
                let mut at = *position;
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (sector, after) = rest.split_at((SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len()));
                    if fortune == 1 || self.draw() % 2 == 0 {
                        sectors.push(Pending::Write(at, sector.to_vec()));
                    }
                    at = at.saturating_add(sector.len());
                    rest = after;
                }
            }
        }
        if let Some(content) = self.contents.get_mut(&identity) {
            for sector in &sectors {
                change_bytes(&mut content.durable, sector);
            }
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
        state.contents.insert(identity, Content { shown: vec![0; size], durable: Vec::new(), pending });
        state.shown.insert(name.to_owned(), identity);
        state.operations.push(Operation::Create(name.to_owned(), identity));
        let life = state.life;
        Ok(Arc::new(FakeFile { state: Arc::clone(&self.state), name: name.to_owned(), identity, life }))
    }

    fn open(&self, name: &str, _writable: bool) -> Result<Arc<dyn DiskFile>> {
        let state = lock(&self.state);
        let identity = state.shown.get(name).copied();
        let identity = identity.ok_or_else(|| failure("open", name, "no such file", false))?;
        Ok(Arc::new(FakeFile { state: Arc::clone(&self.state), name: name.to_owned(), identity, life: state.life }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = lock(&self.state);
        state.may_write(from)?;
        if !state.shown.contains_key(from) {
            return Err(failure("rename", from, "no such file", false));
        }
        let operation = Operation::Rename(from.to_owned(), to.to_owned());
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

    fn total_bytes(&self) -> Result<u64> {
        Ok(lock(&self.state).capacity_bytes)
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
        if std::mem::take(&mut state.fail_next_sync) {
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
}

fn apply(directory: &mut BTreeMap<String, u64>, operation: Operation) {
    match operation {
        Operation::Create(name, identity) => {
            directory.insert(name, identity);
        }
        Operation::Rename(from, to) => {
            if let Some(identity) = directory.remove(&from) {
                directory.insert(to, identity);
            }
        }
        Operation::Remove(name) => {
            directory.remove(&name);
        }
    }
}

fn change_bytes(bytes: &mut Vec<u8>, change: &Pending) {
    match change {
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
