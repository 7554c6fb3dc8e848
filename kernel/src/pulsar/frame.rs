//! Where a frame ends, before anything else is known of it.
//!
//! ```text
//! size of all that follows | size of the command | command | an entry, or nothing      sizes big endian, 32 bits
//! ```

use super::fault::Fault;
use std::ops::Range;

/// Bytes before the command.
pub const HEADER_BYTES: usize = 8;

/// Bytes that the first size does not count.
const UNCOUNTED_BYTES: usize = 4;

/// A frame whose sizes have been read.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Bytes of the command.
    command_bytes: usize,
    /// Bytes of the whole frame.
    pub size_bytes: usize,
}

impl Frame {
    /// Reads the sizes at the start of `bytes`; `None` if they are not complete.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        let Some((total, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let size_bytes = number(total).saturating_add(UNCOUNTED_BYTES);
        if size_bytes <= HEADER_BYTES {
            return Err(Fault::new("a frame without a command"));
        }
        let Some((command, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let command_bytes = number(command);
        if command_bytes > size_bytes - HEADER_BYTES {
            return Err(Fault::new("a command that is larger than its frame"));
        }
        Ok(Some(Frame { command_bytes, size_bytes }))
    }

    /// Where the command lies in a frame that begins at `start`.
    #[inline]
    pub fn command(&self, start: usize) -> Range<usize> {
        start + HEADER_BYTES..start + HEADER_BYTES + self.command_bytes
    }

    /// Where what follows the command lies.
    #[inline]
    pub fn tail(&self, start: usize) -> Range<usize> {
        start + HEADER_BYTES + self.command_bytes..start + self.size_bytes
    }
}

#[inline]
fn number(bytes: &[u8; 4]) -> usize {
    usize::try_from(u32::from_be_bytes(*bytes)).unwrap_or(usize::MAX)
}
