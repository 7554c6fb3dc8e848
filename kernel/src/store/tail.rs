//! The newest bytes of the log in memory: what gathers for the next commit, what is on its way to the disk, and what
//! went there lately, because that is what attached queues are about to read.
//!
//! Invariant: the chunks lie in log order, and the last one is followed by the filling one.

use super::encoding::{index, narrow};
use crate::limits::CHUNK_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a chunk costs beside its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 128;

/// Consecutive bytes of one segment.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The segment's number.
    pub segment: u32,
    /// Where in the segment they start.
    pub start: u32,
    /// Whole records.
    pub bytes: Vec<u8>,
}

impl Chunk {
    /// Where in the segment they end.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(narrow(self.bytes.len()))
    }
}

/// The chunks in memory.
#[derive(Debug, Default)]
pub struct Tail {
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    /// The place of the chunk that was found last: to search among all of them is a miss of the cache for each step.
    found: usize,
    /// The chunk that is being filled.
    pub filling: Chunk,
}

impl Tail {
    /// Starts filling a new segment; the filling chunk has been frozen.
    pub fn begin(&mut self, segment: u32, start: u32) {
        self.filling.segment = segment;
        self.filling.start = start;
    }

    /// Ends the filling chunk and starts the next one behind it; `None` if there is nothing in it.
    pub fn freeze(&mut self) -> Option<Arc<Chunk>> {
        if self.filling.bytes.is_empty() {
            return None;
        }
        let (segment, start, end) = (self.filling.segment, self.filling.start, self.filling.end());
        // A small group is copied, so that it does not keep a large buffer alive.
        let bytes = if self.filling.bytes.len() < CHUNK_BYTES / 2 {
            let exact = self.filling.bytes.as_slice().to_vec();
            self.filling.bytes.clear();
            exact
        } else {
            std::mem::replace(&mut self.filling.bytes, Vec::with_capacity(CHUNK_BYTES))
        };
        self.filling.start = end;
        let chunk = Arc::new(Chunk { segment, start, bytes });
        self.bytes = self.bytes.saturating_add(cost(&chunk));
        self.chunks.push_back(Arc::clone(&chunk));
        Some(chunk)
    }

    /// Puts `chunk` in the place of the one that starts where it starts.
    pub fn replace(&mut self, chunk: &Arc<Chunk>) {
        let key = (chunk.segment, chunk.start);
        if let Some(place) = self.chunks.iter_mut().rev().find(|held| (held.segment, held.start) == key) {
            *place = Arc::clone(chunk);
        }
    }

    /// Forgets the oldest chunks beyond `limit` bytes, but none from `keep` (segment, position) on: those are not
    /// on the disk yet.
    pub fn trim(&mut self, limit: usize, keep: (u32, u32)) {
        while self.bytes > limit {
            match self.chunks.front() {
                Some(oldest) if (oldest.segment, oldest.end()) <= keep => {
                    self.bytes = self.bytes.saturating_sub(cost(oldest));
                    self.chunks.pop_front();
                }
                _ => break,
            }
        }
    }

    /// The bytes from a position to the end of its chunk.
    pub fn slice(&mut self, segment: u32, position: u32) -> Option<&[u8]> {
        if segment == self.filling.segment && position >= self.filling.start {
            let start = index(position.saturating_sub(self.filling.start));
            return self.filling.bytes.get(start..).filter(|rest| !rest.is_empty());
        }
        // Who reads goes on where it was, or with the chunk behind.
        let is_there = |chunk: &Arc<Chunk>| {
            chunk.segment == segment && chunk.start <= position && index(position - chunk.start) < chunk.bytes.len()
        };
        let near = (self.found..).take(2).find(|place| self.chunks.get(*place).is_some_and(is_there));
        let is_before = |chunk: &Arc<Chunk>| (chunk.segment, chunk.start) <= (segment, position);
        self.found = near.or_else(|| self.chunks.partition_point(is_before).checked_sub(1))?;
        let chunk = self.chunks.get(self.found).filter(|chunk| chunk.segment == segment)?;
        chunk.bytes.get(index(position.saturating_sub(chunk.start))..).filter(|rest| !rest.is_empty())
    }

    /// Where the memory starts (segment, position): everything before is to be read from the disk.
    pub fn start(&self) -> (u32, u32) {
        match self.chunks.front() {
            Some(oldest) => (oldest.segment, oldest.start),
            None if self.filling.bytes.is_empty() => (u32::MAX, 0),
            None => (self.filling.segment, self.filling.start),
        }
    }
}

fn cost(chunk: &Chunk) -> usize {
    chunk.bytes.capacity().saturating_add(CHUNK_OVERHEAD_BYTES)
}
