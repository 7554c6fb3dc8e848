//! Reads the data types of MQTT 5 section 1.5 from the start of a slice.

use super::fault::Fault;

/// What is left of a packet.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True if everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Fault> {
        let (&byte, rest) = self.rest.split_first().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(byte)
    }

    /// A Two Byte Integer (section 1.5.2).
    #[inline]
    pub fn two_bytes(&mut self) -> Result<u16, Fault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    /// A Four Byte Integer (section 1.5.3).
    pub fn four_bytes(&mut self) -> Result<u32, Fault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// A Variable Byte Integer in as few bytes as possible [MQTT-1.5.5-1].
    #[inline]
    pub fn variable(&mut self) -> Result<u32, Fault> {
        match variable(self.rest)? {
            None => Err(ENDS_EARLY),
            Some(found) if !found.minimal => Err(NOT_MINIMAL),
            Some(found) => {
                self.take(found.size)?;
                Ok(found.value)
            }
        }
    }

    /// Binary Data (section 1.5.6).
    #[inline]
    pub fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let size = self.two_bytes()?;
        self.take(usize::from(size))
    }

    /// A UTF-8 Encoded String [MQTT-1.5.4-1] [MQTT-1.5.4-2].
    pub fn text(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.binary()?;
        if bytes.contains(&0) {
            return Err(Fault::malformed("a string with U+0000 [MQTT-1.5.4-2]"));
        }
        std::str::from_utf8(bytes).map_err(|_| Fault::malformed("a string that is not UTF-8 [MQTT-1.5.4-1]"))
    }
}

const ENDS_EARLY: Fault = Fault {
    reason_code: super::reason_code::MALFORMED_PACKET,
    reason: "a field passes the end of its packet",
    version: None,
};

/// Why a Variable Byte Integer with needless bytes is refused.
pub const NOT_MINIMAL: Fault = Fault {
    reason_code: super::reason_code::MALFORMED_PACKET,
    reason: "a Variable Byte Integer with needless bytes [MQTT-1.5.5-1]",
    version: None,
};

/// A decoded Variable Byte Integer.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its value.
    pub value: u32,
    /// How many bytes it took.
    pub size: usize,
    /// False if fewer bytes could have carried it.
    pub minimal: bool,
}

/// The Variable Byte Integer at the start of `bytes`; `None` if more bytes are needed.
#[inline]
pub fn variable(bytes: &[u8]) -> Result<Option<Variable>, Fault> {
    let mut value = 0_u32;
    let mut shift = 0_u32;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            return Ok(Some(Variable { value, size: index + 1, minimal: byte != 0 || index == 0 }));
        }
    }
    if bytes.len() >= 4 {
        return Err(Fault::malformed("a Variable Byte Integer of more than four bytes (MQTT 5 section 1.5.5)"));
    }
    Ok(None)
}
