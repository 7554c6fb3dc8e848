//! Where a frame ends, and where its command does.
//!
//! ```text
//! total | size of the command | command | tail of an entry, if the command has one        numbers big endian, 32 bits
//! ```
//!
//! Owns: the sizes of a frame. Never: looks into a command.

/// Bytes of `total` and of the command's size.
pub const HEAD_BYTES: usize = 8;

/// The sizes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the whole frame.
    pub size_bytes: usize,
    /// Bytes of its command.
    pub command_bytes: usize,
}

/// What is wrong with a frame.
pub const CONTRADICTION: &str = "a frame whose sizes contradict each other";

impl Frame {
    /// The frame at the start of `bytes`; `None` if its head is not complete. An error if its command does not fit
    /// into it.
    pub fn read(bytes: &[u8]) -> Result<Option<Frame>, &'static str> {
        let Some((total, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let Some(command) = rest.first_chunk::<4>() else { return Ok(None) };
        let size = |number: [u8; 4]| usize::try_from(u32::from_be_bytes(number)).unwrap_or(usize::MAX);
        let (total, command_bytes) = (size(*total), size(*command));
        if command_bytes == 0 || total.checked_sub(4).is_none_or(|rest| command_bytes > rest) {
            return Err(CONTRADICTION);
        }
        Ok(Some(Frame { size_bytes: total.saturating_add(4), command_bytes }))
    }
}
