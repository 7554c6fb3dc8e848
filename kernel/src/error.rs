//! Every error the kernel reports; each variant says whose fault it is.

use std::fmt;

/// What went wrong, and whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The world's fault: the disk refused (`operation`, `file`, the operating system's words).
    Disk {
        /// What was tried: `write`, `sync`, `open` and so on.
        operation: &'static str,
        /// The file it was tried on.
        file: String,
        /// What the operating system said.
        reason: String,
        /// True where the disk (or the quota) is full.
        full: bool,
    },
    /// The world's fault: stored bytes are not what was written.
    Damaged {
        /// The file.
        file: String,
        /// The first byte that is wrong.
        position: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file was written by a newer version; it is left alone.
    NewerFormat {
        /// The file.
        file: String,
        /// The version it carries.
        version: u32,
    },
    /// A sync failed earlier: the log takes nothing more until it is opened again
    /// (docs/adr/0004-torn-tail-or-damage.md).
    Poisoned,
    /// Nobody's fault: there is no room just now, and there will be.
    Busy(String),
    /// The caller's fault: an argument is out of its range.
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Disk { operation, file, reason, .. } => write!(formatter, "{operation} {file}: {reason}"),
            Error::Damaged { file, position, reason } => {
                write!(formatter, "{file} is damaged at byte {position}: {reason}")
            }
            Error::NewerFormat { file, version } => {
                write!(formatter, "{file} was written by a newer version (format {version}); it is left unchanged")
            }
            Error::Poisoned => {
                write!(formatter, "the log is closed to writes because a sync failed; restart to recover")
            }
            Error::Busy(reason) | Error::Invalid(reason) => write!(formatter, "{reason}"),
        }
    }
}

impl std::error::Error for Error {}

/// The kernel's result.
pub type Result<T> = std::result::Result<T, Error>;
