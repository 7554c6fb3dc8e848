//! The fixed header (MQTT 5 section 2.1): where a packet ends, before anything else is known of it.

use super::fault::Fault;
use super::kind::Kind;
use super::reader::variable;

/// A packet whose fixed header has been read.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The first byte: packet type and flags.
    pub first: u8,
    /// Bytes of the fixed header.
    pub header_bytes: usize,
    /// Bytes of the whole packet.
    pub size_bytes: usize,
    /// False if Remaining Length took more bytes than it needs: refused by MQTT 5 only [MQTT-1.5.5-1].
    pub minimal: bool,
}

impl Frame {
    /// Reads the fixed header at the start of `bytes`; `None` if it is not complete.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let Some(remaining) = variable(rest)? else { return Ok(None) };
        let header_bytes = remaining.size + 1;
        let size_bytes = usize::try_from(remaining.value).unwrap_or(usize::MAX).saturating_add(header_bytes);
        Ok(Some(Frame { first, header_bytes, size_bytes, minimal: remaining.minimal }))
    }

    /// The packet's kind.
    #[inline]
    pub fn kind(&self) -> Result<Kind, Fault> {
        Kind::from_bits(self.first >> 4).ok_or_else(|| Fault::malformed("packet type 0 (MQTT 5 section 2.1.2)"))
    }

    /// The four flags.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.first & 0x0F
    }
}
