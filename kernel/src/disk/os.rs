//! The real disk: one directory of the operating system.
//!
//! Owns: the translation of [`Disk`] to system calls. Never: what the files mean. Lengths are set aside with fallocate,
//! so that a later fdatasync has no allocation to write down.

use super::{Disk, DiskFile};
use crate::error::{Error, Result};
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `ENOSPC` and `EDQUOT`: no space left, and quota used up.
const FULL: [i32; 2] = [28, 122];

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDisk {
    directory: PathBuf,
}

#[derive(Debug)]
struct OsFile {
    name: String,
    file: File,
}

impl OsDisk {
    /// The directory, which is made if it does not exist.
    pub fn create(directory: &Path) -> Result<OsDisk> {
        std::fs::create_dir_all(directory)
            .map_err(|error| failure("create", &directory.display().to_string(), &error))?;
        Ok(OsDisk { directory: directory.to_path_buf() })
    }

    /// The directory, which has to exist.
    pub fn open(directory: &Path) -> Result<OsDisk> {
        std::fs::metadata(directory).map_err(|error| failure("open", &directory.display().to_string(), &error))?;
        Ok(OsDisk { directory: directory.to_path_buf() })
    }

    /// True if another holds an exclusive lock (flock) on the file `name`.
    pub fn is_locked(&self, name: &str) -> bool {
        match File::open(self.directory.join(name)) {
            Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(_) => false,
        }
    }
}

impl Disk for OsDisk {
    fn list(&self) -> Result<Vec<String>> {
        let shown = self.directory.display().to_string();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(|error| failure("list", &shown, &error))? {
            let entry = entry.map_err(|error| failure("list", &shown, &error))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str, reserved: u64) -> Result<Arc<dyn DiskFile>> {
        let path = self.directory.join(name);
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = opened.map_err(|error| failure("create", name, &error))?;
        if reserved > 0 {
            if let Err(error) = set_aside(&file, reserved) {
                drop(std::fs::remove_file(&path));
                return Err(failure("reserve", name, &error));
            }
        }
        Ok(Arc::new(OsFile { name: name.to_owned(), file }))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        let opened = OpenOptions::new().read(true).write(writable).open(self.directory.join(name));
        let file = opened.map_err(|error| failure("open", name, &error))?;
        if !writable {
            let held = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
            // Whoever removed it has begun to give its bytes back. Where there are no such locks nobody does.
            if held == Err(rustix::io::Errno::WOULDBLOCK) {
                return Err(failure("open", name, &rustix::io::Errno::NOENT.into()));
            }
        }
        Ok(Arc::new(OsFile { name: name.to_owned(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
            .map_err(|error| failure("rename", from, &error))
    }

    fn remove(&self, name: &str) -> Result<()> {
        std::fs::remove_file(self.directory.join(name)).map_err(|error| failure("remove", name, &error))
    }

    fn sync_directory(&self) -> Result<()> {
        let shown = self.directory.display().to_string();
        let directory = File::open(&self.directory).map_err(|error| failure("open", &shown, &error))?;
        directory.sync_all().map_err(|error| failure("sync", &shown, &error))
    }

    fn free_bytes(&self) -> Result<u64> {
        let filesystem = rustix::fs::statvfs(&self.directory)
            .map_err(|error| failure("statvfs", &self.directory.display().to_string(), &error.into()))?;
        Ok(filesystem.f_bavail.saturating_mul(filesystem.f_frsize))
    }
}

impl DiskFile for OsFile {
    fn write_at(&self, position: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, position).map_err(|error| failure("write", &self.name, &error))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match self.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure("read", &self.name, &error)),
            }
        }
        Ok(filled)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| failure("sync", &self.name, &error))
    }

    fn size(&self) -> Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| failure("stat", &self.name, &error))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        let result = match self.file.metadata() {
            // A full disk may refuse the room; what is there can still be read.
            Ok(metadata) if metadata.len() < size => set_aside(&self.file, size).or_else(|_| self.file.set_len(size)),
            _ => self.file.set_len(size),
        };
        result.map_err(|error| failure("truncate", &self.name, &error))
    }

    fn release(&self, position: u64, bytes: u64) {
        // Advice: where it is not taken, the memory goes when somebody else needs it.
        rustix::fs::fadvise(&self.file, position, NonZeroU64::new(bytes), Advice::DontNeed).ok();
    }

    fn is_held(&self) -> bool {
        // Another name is that of a backup made of links.
        let has_name = self.file.metadata().map_or(true, |metadata| metadata.nlink() > 0);
        has_name || rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

/// Gives a file its full length, with the room for it where the file system can do that.
fn set_aside(file: &File, size: u64) -> std::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size),
        other => other.map_err(std::io::Error::from),
    }
}

fn failure(operation: &'static str, file: &str, error: &std::io::Error) -> Error {
    let full = error.raw_os_error().is_some_and(|code| FULL.contains(&code));
    Error::Disk { operation, file: file.to_owned(), reason: error.to_string(), full }
}
