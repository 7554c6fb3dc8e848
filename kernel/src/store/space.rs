//! Whether the disk has room for more messages.
//!
//! Owns: the reserve, and whether it is touched. What acknowledges and what is done about a full disk goes on within
//! the reserve; only messages are refused.

use crate::disk::Disk;
use crate::ids::Timestamp;

/// How long a full disk is not asked again whether it still is.
const RECHECK_US: u64 = 1_000_000;

/// The room that is left.
pub(super) struct Space {
    reserve_bytes: u64,
    is_low: bool,
    /// What was free beyond the reserve when it was last looked.
    spare_bytes: u64,
    checked_at: u64,
}

impl Space {
    /// Enough, until something else is known.
    pub(super) fn new(reserve_bytes: u64) -> Space {
        Space { reserve_bytes, is_low: false, spare_bytes: 0, checked_at: 0 }
    }

    /// True if the reserve was touched when it was last looked.
    pub(super) fn is_low(&self) -> bool {
        self.is_low
    }

    /// True if so much was free beyond the reserve when it was last looked.
    pub(super) fn has_spare(&self, bytes: u64) -> bool {
        !self.is_low && self.spare_bytes >= bytes
    }

    /// So much is free.
    pub(super) fn note(&mut self, free_bytes: u64) {
        self.is_low = free_bytes < self.reserve_bytes;
        self.spare_bytes = free_bytes.saturating_sub(self.reserve_bytes);
    }

    /// The disk said that it is full.
    pub(super) fn run_out(&mut self) {
        self.is_low = true;
    }

    /// True if messages may be stored. Where there was no room the disk is asked again, now and then.
    pub(super) fn has_room(&mut self, disk: &dyn Disk, now: Timestamp) -> bool {
        if !self.is_low {
            return true;
        }
        if now.0.saturating_sub(self.checked_at) >= RECHECK_US {
            self.checked_at = now.0;
            if let Ok(free_bytes) = disk.free_bytes() {
                self.note(free_bytes);
            }
        }
        !self.is_low
    }
}
