//! Bytes of one connection that no turn has decoded yet.
//!
//! Owns: how they are kept and moved. Never: says when they are decoded.
//!
//! Invariant: a byte is moved a bounded number of times, however many frames are taken from before it.

/// Capacity that an emptied backlog may keep: enough for the tail of small frames, little enough for a connection that
/// idles.
const KEPT_BYTES: usize = 128;

/// What waits of one connection, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    /// How much of that has been decoded.
    consumed: usize,
}

impl Backlog {
    /// Bytes that are not decoded.
    #[inline]
    pub fn waiting(&self) -> &[u8] {
        self.bytes.get(self.consumed..).unwrap_or_default()
    }

    /// Where further bytes are appended.
    #[inline]
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The first `count` bytes of what waits have been decoded.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.consumed += count;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Backlog::default();
    }

    /// Moves what is left to the start: always if the connection is `resting`, else rarely enough.
    pub fn compact(&mut self, resting: bool) {
        if self.consumed == self.bytes.len() {
            self.bytes.clear();
            self.consumed = 0;
        } else if resting || self.consumed >= self.bytes.len() / 2 {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }
}
