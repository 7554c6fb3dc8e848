//! Entries opened: what their metadata says, the messages that are in them, and a message written as one.
//!
//! Owns: the layout of an entry, how it is compressed, and which of its parts stand for which part of a message.
//! Never: a command of a protocol, the log, or who gets an entry.
//!
//! What this folder calls a *tail* is an entry from the two bytes on that say that it has a checksum, as it is stored:
//!
//! ```text
//! 0e 01 | CRC-32C of what follows | size of the metadata | metadata | payload        numbers big endian, 32 bits
//! ```
//!
//! The payload is one message, or a batch: for each message the size of its own metadata, that metadata, its payload.
//!
//! Invariants:
//! 1. No number in an entry costs memory before it was compared with the bytes there are and with a limit.
//! 2. Nothing here verifies the checksum: that was done when the entry came.
//!
//! Flow: decode reads the metadata; who needs single messages opens the entry.

mod base64;
mod compression;
pub mod message;
pub mod metadata;
pub mod opened;
mod properties;

pub use compression::Compression;
pub use message::{of_message, MILLISECOND_US};
pub use metadata::{key_hash, metadata, Metadata};
pub use opened::{open, InnerMessage, Opened};

/// The two bytes that say that an entry has a checksum.
pub const MAGIC: [u8; 2] = [0x0e, 0x01];

/// Why the messages of an entry cannot be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It is encrypted.
    Encrypted,
    /// It is one of several that make up one message.
    Chunk,
    /// It is not what it says.
    Malformed,
    /// It would be larger than what is opened.
    TooLarge,
}
