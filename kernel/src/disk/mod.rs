//! The disk, as the log needs it: `os` is the real one, `fake` a seeded one with faults.
//!
//! A write is visible to reads at once and survives a crash only after `sync`. A file's creation, renaming and
//! removal survive only after `sync_directory`.

pub mod fake;
pub mod os;

use crate::error::Result;
use std::sync::Arc;

/// A flat directory of files.
pub trait Disk: Send + Sync {
    /// The names of all files, in no particular order.
    fn list(&self) -> Result<Vec<String>>;
    /// A new empty file with `reserved` bytes set aside (they read as zeros); an existing one is an error.
    fn create(&self, name: &str, reserved: u64) -> Result<Arc<dyn DiskFile>>;
    /// An existing file; `writable` false opens it for reading only, and holds it as long as it is open.
    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>>;
    /// Renames, replacing `to`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes creations, renamings and removals durable.
    fn sync_directory(&self) -> Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> Result<u64>;
}

/// One open file. All calls may come from any thread.
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes` at `position`.
    fn write_at(&self, position: u64, bytes: &[u8]) -> Result<()>;
    /// Reads at `position`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, position: u64, into: &mut [u8]) -> Result<usize>;
    /// Returns once everything written before is on the medium (fdatasync).
    fn sync(&self) -> Result<()>;
    /// The file's size in bytes, reserved bytes included.
    fn size(&self) -> Result<u64>;
    /// Cuts or extends the file.
    fn truncate(&self, size: u64) -> Result<()>;
    /// The system need not keep these bytes in memory: whoever reads them later reads the medium. It may keep them.
    fn release(&self, position: u64, bytes: u64);
    /// True of a file that has been removed if anybody holds it who has opened it for reading only, if it has another
    /// name, or if that cannot be told; once it is false it is so for good.
    fn is_held(&self) -> bool;
}
