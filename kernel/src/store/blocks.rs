//! The block cache: bytes of segments as they were read from the disk, bounded, least recently used first out.

use super::encoding::{index, wide};
use super::record::stated_size;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::limits::BLOCK_BYTES;
use ahash::RandomState;
use lru::LruCache;

/// A segment, and a place within it.
type Key = (u32, u32);

/// Blocks in memory.
pub struct Blocks {
    blocks: LruCache<Key, Vec<u8>, RandomState>,
    /// The one that was asked for last, apart from the others: mostly the next record lies in it too, and need not be
    /// looked up.
    held: Option<(Key, Vec<u8>)>,
    limit_bytes: usize,
    bytes: usize,
    scratch: Vec<u8>,
    /// Records found in memory.
    pub hits: u64,
    /// Blocks read.
    pub misses: u64,
}

impl Blocks {
    /// An empty cache.
    pub fn new(limit_bytes: usize) -> Blocks {
        let blocks = LruCache::unbounded_with_hasher(RandomState::with_seeds(21, 22, 23, 24));
        Blocks { blocks, held: None, limit_bytes, bytes: 0, scratch: Vec::new(), hits: 0, misses: 0 }
    }

    /// What all blocks together take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the block in memory that the record at `position` begins in; true if it had to be read. `limit` is where
    /// what is on the disk ends.
    pub fn hold(&mut self, file: &dyn DiskFile, segment: u32, position: u32, limit: u32) -> Result<bool> {
        let key = (segment, position / BLOCK_BYTES);
        let start = position.saturating_sub(position % BLOCK_BYTES);
        let wanted = index(limit.saturating_sub(start).min(BLOCK_BYTES));
        if self.held.as_ref().is_none_or(|(held, _)| *held != key) {
            if let Some((before, block)) = self.held.take() {
                self.blocks.put(before, block);
            }
            self.held = self.blocks.pop(&key).map(|block| (key, block));
        }
        if self.held.as_ref().is_some_and(|(_, block)| block.len() >= wanted) {
            self.hits = self.hits.wrapping_add(1);
            return Ok(false);
        }
        self.load(file, key, start, wanted)?;
        Ok(true)
    }

    /// The bytes of the record at `position`, whose block is held, or what there is of it before `limit`.
    pub fn record(&mut self, file: &dyn DiskFile, position: u32, limit: u32) -> Result<&[u8]> {
        let within = index(position % BLOCK_BYTES);
        let left = index(limit.saturating_sub(position));
        let rest = self.held.as_ref().and_then(|(_, block)| block.get(within..)).unwrap_or_default();
        let size = stated_size(rest).unwrap_or(super::record::HEADER_BYTES).min(left);
        if size > rest.len() {
            return self.spanning(file, position, size, left);
        }
        let bytes = self.held.as_ref().and_then(|(_, block)| block.get(within..within.saturating_add(size)));
        Ok(bytes.unwrap_or_default())
    }

    /// Forgets the blocks of a segment.
    pub fn forget(&mut self, segment: u32) {
        if let Some((key, block)) = self.held.take() {
            self.blocks.put(key, block);
        }
        let keys: Vec<Key> = self.blocks.iter().map(|(key, _)| *key).filter(|key| key.0 == segment).collect();
        for key in keys {
            let freed = self.blocks.pop(&key).map_or(0, |block| block.capacity());
            self.bytes = self.bytes.saturating_sub(freed);
        }
    }

    fn load(&mut self, file: &dyn DiskFile, key: Key, start: u32, wanted: usize) -> Result<()> {
        self.misses = self.misses.wrapping_add(1);
        let mut bytes = match self.held.take() {
            Some((_, old)) => old,
            None => self.free_buffer(),
        };
        self.bytes = self.bytes.saturating_sub(bytes.capacity());
        // What it held is read over: only a buffer that grows is filled first.
        bytes.resize(wanted, 0);
        let count = file.read_at(u64::from(start), &mut bytes)?;
        bytes.truncate(count);
        self.bytes = self.bytes.saturating_add(bytes.capacity());
        self.held = Some((key, bytes));
        Ok(())
    }

    /// A buffer for one more block: a new one, or that of the least recently used block where the cache is full.
    fn free_buffer(&mut self) -> Vec<u8> {
        if self.bytes.saturating_add(index(BLOCK_BYTES)) <= self.limit_bytes {
            let buffer = Vec::with_capacity(index(BLOCK_BYTES));
            self.bytes = self.bytes.saturating_add(buffer.capacity());
            return buffer;
        }
        match self.blocks.pop_lru() {
            Some((_, block)) => block,
            None => {
                let buffer = Vec::with_capacity(index(BLOCK_BYTES));
                self.bytes = self.bytes.saturating_add(buffer.capacity());
                buffer
            }
        }
    }

    /// A record that does not lie in one block. Its stated size may be damaged, so memory grows with what is there.
    fn spanning(&mut self, file: &dyn DiskFile, position: u32, size: usize, left: usize) -> Result<&[u8]> {
        let mut size = size;
        if size < 4 || self.scratch.capacity() > index(BLOCK_BYTES).saturating_mul(8) {
            self.scratch = Vec::new();
        }
        loop {
            self.scratch.clear();
            let available = file.size()?.saturating_sub(u64::from(position));
            if wide(size) > available {
                size = index(u32::try_from(available).unwrap_or(0));
            }
            self.scratch.resize(size, 0);
            let count = file.read_at(u64::from(position), &mut self.scratch)?;
            self.scratch.truncate(count);
            let stated = stated_size(&self.scratch).unwrap_or(size).min(left);
            if stated <= size {
                break;
            }
            size = stated;
            if wide(size) > available {
                break;
            }
        }
        Ok(&self.scratch)
    }
}
