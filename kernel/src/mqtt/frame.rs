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

/// True if these are whole packets that end exchanges, in their shortest form: nothing has to follow them
/// (MQTT 5 sections 3.4 and 3.7).
#[inline]
pub fn are_last_answers(bytes: &[u8]) -> bool {
    bytes.chunks(4).all(|packet| matches!(packet, [0x40 | 0x70, 2, _, _]))
}

#[cfg(test)]
mod tests {
    use super::are_last_answers;

    #[test]
    fn only_what_ends_an_exchange_may_wait_for_company() {
        assert!(are_last_answers(&[0x40, 2, 0, 1, 0x70, 2, 0, 2]));
        // PUBREC, a reason code, a packet that is cut.
        for bytes in [&[0x50, 2, 0, 1][..], &[0x40, 3, 0, 1, 0x80], &[0x40, 2, 0], &[0x40, 2, 0, 1, 0x40]] {
            assert!(!are_last_answers(bytes), "{bytes:?}");
        }
    }
}
