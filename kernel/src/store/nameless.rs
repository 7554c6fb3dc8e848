//! Files that have no name any more, and whose bytes go back to the disk little by little.
//!
//! Owns: how much at a time. A file that is closed gives back all of them at one go, and whoever commits meanwhile
//! waits for that: forty milliseconds for 64 MiB on ext4 (docs/adr/0033-footers-wait.md).
//!
//! Invariant: a file is cut only when its removal is durable: a name that a crash brought back would be that of a file
//! which is cut.

use crate::disk::{Disk, DiskFile};
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::Arc;

/// What one step gives back at most. A commit that comes meanwhile waits for that, a millisecond or two.
const STEP_BYTES: u64 = 4_194_304;

/// No file goes in fewer steps.
const STEPS: u64 = 16;

/// Such files, oldest first, and what a step gives back of each.
#[derive(Default)]
pub(super) struct Nameless {
    files: VecDeque<(Arc<dyn DiskFile>, u64)>,
    /// Names have been taken since the directory was synced.
    is_unsynced: bool,
}

impl Nameless {
    /// Takes a file's name.
    pub(super) fn remove(&mut self, disk: &dyn Disk, name: &str, file: Arc<dyn DiskFile>) -> Result<()> {
        let step = file.size()?.div_ceil(STEPS).min(STEP_BYTES);
        disk.remove(name)?;
        self.files.push_back((file, step));
        self.is_unsynced = true;
        Ok(())
    }

    /// Makes it durable that files have gone, or gives some back; true while there is more to do. A file that somebody
    /// reads goes when the last of them closes it; one that has another name, in a backup made of links, stays whole.
    pub(super) fn step(&mut self, disk: &dyn Disk) -> Result<bool> {
        if self.is_unsynced {
            disk.sync_directory()?;
            self.is_unsynced = false;
            return Ok(true);
        }
        let Some((file, step)) = self.files.pop_front() else { return Ok(false) };
        let size = file.size()?.saturating_sub(step);
        if size > 0 && Arc::strong_count(&file) == 1 && !file.is_held() {
            file.truncate(size)?;
            self.files.push_front((file, step));
        }
        Ok(true)
    }
}
