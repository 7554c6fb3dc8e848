//! Unsigned integers in 7-bit groups, least significant first: the compact form inside control records.
//!
//! Invariant: [`Reader`] takes what [`put`] writes and refuses everything else, so a value has one form.

use crate::error::{Error, Result};

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Reads integers from the front of a slice.
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// True when everything has been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One plain byte.
    pub fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.bytes.split_first().ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(*first)
    }

    /// One integer; refuses one that is cut short, longer than needed, or above 64 bits.
    #[allow(clippy::should_implement_trait)] // It is no iterator: the end is an error here.
    pub fn next(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if (low << shift) >> shift != low {
                break;
            }
            value |= low << shift;
            if byte == 0 && shift > 0 {
                return Err(Error::Invalid("an integer is longer than needed".into()));
            }
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Invalid("an integer is above 64 bits".into()))
    }

    /// One integer of 16 bits.
    pub fn small(&mut self) -> Result<u16> {
        u16::try_from(self.next()?).map_err(|_| Error::Invalid("an integer is longer than 16 bits".into()))
    }

    /// Bytes after their number.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.count()?;
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// A number of items that follow, each of at least one byte: more than there are bytes is refused.
    pub fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.next()?).unwrap_or(usize::MAX);
        if count > self.bytes.len() {
            return Err(cut_short());
        }
        Ok(count)
    }
}

fn cut_short() -> Error {
    Error::Invalid("the bytes end too early".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_is_read(values: Vec<u64>) {
            let mut out = Vec::new();
            values.iter().for_each(|value| put(&mut out, *value));
            let mut reader = Reader::new(&out);
            for value in values {
                prop_assert_eq!(reader.next().unwrap(), value);
            }
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn what_is_read_would_be_put_so(bytes: Vec<u8>, last in 0..3_u8) {
            // Long runs of high bits are where integers end late.
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte | 0x80).chain([last]).collect();
            for bytes in [bytes.as_slice(), bytes.get(1..).unwrap_or_default()] {
                let mut reader = Reader::new(bytes);
                if let Ok(value) = reader.next() {
                    let mut out = Vec::new();
                    put(&mut out, value);
                    prop_assert_eq!(out.as_slice(), &bytes[..bytes.len() - reader.rest().len()]);
                }
            }
        }
    }

    #[test]
    fn one_value_has_one_form() {
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Reader::new(&largest).next(), Ok(u64::MAX));
        let above = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        let endless = [0x80; 11];
        for refused in [&[0x80, 0][..], &[0xff, 0x80, 0], &[0x80], &[], &above, &endless] {
            assert!(Reader::new(refused).next().is_err(), "{refused:02x?}");
        }
    }
}
