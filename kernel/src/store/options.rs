//! What the caller decides about a log.

use crate::error::{Error, Result};
use crate::limits::{SEGMENT_BYTES_MAXIMUM, SEGMENT_BYTES_MINIMUM};

/// When something counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When fdatasync has returned.
    Fsync,
    /// When the operating system has it.
    Os,
    /// At once; it is written when there is time.
    Memory,
}

/// What the caller decides about a log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes of the tail and of the block cache, each.
    pub cache_bytes: usize,
    /// While less than this is free on the disk, messages are refused.
    pub reserve_bytes: u64,
    /// When something counts as durable.
    pub durability: Durability,
    /// Drawn by the caller: gives a new log its identity and spreads hash tables.
    pub seed: u64,
}

impl Options {
    /// An error where a value is out of its range.
    pub fn check(&self) -> Result<()> {
        if !(SEGMENT_BYTES_MINIMUM..=SEGMENT_BYTES_MAXIMUM).contains(&self.segment_bytes) {
            let reason = format!("segment_bytes must be between {SEGMENT_BYTES_MINIMUM} and {SEGMENT_BYTES_MAXIMUM}");
            return Err(Error::Invalid(reason));
        }
        Ok(())
    }
}
