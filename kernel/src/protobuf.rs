//! Protobuf's encoding of fields: a number, how the value is written, the value.
//!
//! Owns: how fields are told apart and written. Never: knows what a field means, or copies what it reads.
//!
//! Invariants:
//! 1. A reader allocates nothing and never reads past its bytes; a length that goes past them is refused.
//! 2. Groups, field numbers that there are not, and integers above 64 bits are refused. Integers that are longer than
//!    needed are taken: other writers write them.

use crate::varint;

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// The bytes are no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The value of a field, as it is written. A field whose value is not written as expected counts as unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of any size, a truth value or an enumeration. A negative number is its two's complement in 64 bits.
    Varint(u64),
    /// Eight bytes, little endian.
    EightBytes(u64),
    /// Text, bytes, or the fields of a message.
    Bytes(&'a [u8]),
    /// Four bytes, little endian.
    FourBytes(u32),
}

/// Reads fields from the front of a slice.
#[derive(Debug, Clone)]
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

    /// The number and the value of the next field; `None` at the end.
    #[allow(clippy::should_implement_trait)] // Bytes that are no fields are an error here.
    #[inline(always)] // As a call it costs as much for what it returns as for what it does.
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        let tag = match self.bytes.split_first() {
            // Nearly all take one byte.
            Some((&tag @ 8..0x80, rest)) => {
                self.bytes = rest;
                u32::from(tag)
            }
            Some(_) => self.long_tag()?,
            None => return Ok(None),
        };
        let value = match u64::from(tag & 7) {
            VARINT => Value::Varint(self.varint()?),
            EIGHT_BYTES => Value::EightBytes(u64::from_le_bytes(*self.array()?)),
            BYTES => Value::Bytes(self.delimited()?),
            FOUR_BYTES => Value::FourBytes(u32::from_le_bytes(*self.array()?)),
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    #[inline(never)]
    fn long_tag(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).ok().filter(|tag| tag >> 3 > 0).ok_or(Malformed)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        match self.bytes.split_first() {
            // Nearly all take one byte.
            Some((byte, rest)) if *byte < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let (byte, rest) = self.bytes.split_first().ok_or(Malformed)?;
            self.bytes = rest;
            let low = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit, and there is no eleventh.
            if shift >= 63 && (shift > 63 || low > 1) {
                return Err(Malformed);
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    #[inline]
    fn delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let size = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.bytes.split_at_checked(size).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(bytes)
    }

    #[inline]
    fn array<const SIZE: usize>(&mut self) -> Result<&'a [u8; SIZE], Malformed> {
        let (array, rest) = self.bytes.split_first_chunk::<SIZE>().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(array)
    }
}

/// A number of 32 bits: what is written above them does not count.
pub fn low_half(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or_default()
}

/// Appends a field that is a number, a truth value or an enumeration.
#[inline]
pub fn put_varint(into: &mut Vec<u8>, field: u32, value: u64) {
    put_tag(into, field, VARINT);
    varint::put(into, value);
}

/// Appends a field that is text or bytes.
#[inline]
pub fn put_bytes(into: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_tag(into, field, BYTES);
    varint::put(into, u64::try_from(value.len()).unwrap_or(u64::MAX));
    into.extend_from_slice(value);
}

/// Appends a field that is a message, whose fields `write` appends.
#[inline]
pub fn put_message(into: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_tag(into, field, BYTES);
    // The size of nearly every message takes one byte; what follows is moved where it takes more.
    let at = into.len();
    into.push(0);
    write(into);
    let size = u64::try_from(into.len().saturating_sub(at + 1)).unwrap_or(u64::MAX);
    match (u8::try_from(size), into.get_mut(at)) {
        (Ok(size), Some(byte)) if size < 0x80 => *byte = size,
        _ => {
            let mut prefix = Vec::with_capacity(10);
            varint::put(&mut prefix, size);
            into.splice(at..=at, prefix);
        }
    }
}

#[inline]
fn put_tag(into: &mut Vec<u8>, field: u32, form: u64) {
    varint::put(into, u64::from(field) << 3 | form);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Part {
        Number(u64),
        Text(Vec<u8>),
        Message(u64, Vec<u8>),
    }

    fn parts() -> impl Strategy<Value = Vec<(u32, Part)>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
        let number = any::<u64>().prop_map(Part::Number);
        let text = bytes().prop_map(Part::Text);
        let message = (any::<u64>(), bytes()).prop_map(|(number, text)| Part::Message(number, text));
        proptest::collection::vec((1..1_u32 << 29, prop_oneof![number, text, message]), 0..8)
    }

    proptest! {
        #[test]
        fn what_was_put_is_read(parts in parts()) {
            let mut out = Vec::new();
            for (field, part) in &parts {
                match part {
                    Part::Number(number) => put_varint(&mut out, *field, *number),
                    Part::Text(text) => put_bytes(&mut out, *field, text),
                    Part::Message(number, text) => put_message(&mut out, *field, |out| {
                        put_varint(out, 1, *number);
                        put_bytes(out, 2, text);
                    }),
                }
            }
            let mut reader = Reader::new(&out);
            for (field, part) in &parts {
                let found = reader.next().unwrap().unwrap();
                prop_assert_eq!(found.0, *field);
                match (found.1, part) {
                    (Value::Varint(found), Part::Number(number)) => prop_assert_eq!(found, *number),
                    (Value::Bytes(found), Part::Text(text)) => prop_assert_eq!(found, text.as_slice()),
                    (Value::Bytes(found), Part::Message(number, text)) => {
                        let mut inner = Reader::new(found);
                        prop_assert_eq!(inner.next(), Ok(Some((1, Value::Varint(*number)))));
                        prop_assert_eq!(inner.next(), Ok(Some((2, Value::Bytes(text)))));
                        prop_assert_eq!(inner.next(), Ok(None));
                    }
                    (found, part) => prop_assert!(false, "{found:?} for {part:?}"),
                }
            }
            prop_assert_eq!(reader.next(), Ok(None));
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while let Ok(Some(_)) = reader.next() {}
            prop_assert!(bytes.ends_with(reader.rest()));
        }
    }

    #[test]
    fn numbers_are_written_as_the_encoding_says() {
        // The examples of the encoding's own page: field 1 is 150, field 2 is "testing", field 3 a message of field 1.
        let mut out = Vec::new();
        put_varint(&mut out, 1, 150);
        put_bytes(&mut out, 2, b"testing");
        put_message(&mut out, 3, |out| put_varint(out, 1, 150));
        assert_eq!(out, b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01");
        let mut fixed = Reader::new(b"\x0d\x01\x00\x00\x00\x09\x02\x00\x00\x00\x00\x00\x00\x00");
        assert_eq!(fixed.next(), Ok(Some((1, Value::FourBytes(1)))));
        assert_eq!(fixed.next(), Ok(Some((1, Value::EightBytes(2)))));
    }

    #[test]
    fn an_integer_may_be_longer_than_needed() {
        assert_eq!(Reader::new(b"\x08\x81\x80\x00").next(), Ok(Some((1, Value::Varint(1)))));
    }

    #[test]
    fn what_is_no_field_is_refused() {
        let endless = [[8].as_slice(), &[0x80; 10], &[0]].concat();
        let above = [[8].as_slice(), &[0xff; 9], &[2]].concat();
        let field_above = b"\x80\x80\x80\x80\x10\x00";
        for refused in [
            &b"\x00\x00"[..], // Field 0.
            b"\x0b\x0c",      // A group.
            b"\x0c",          // The end of one.
            b"\x0e",          // No way to write a value.
            b"\x08",          // A number that is not there.
            b"\x08\x80",      // A number that is cut short.
            b"\x12\x02a",     // Text that is cut short.
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a",
            b"\x09\x00\x00\x00", // Eight bytes that are three.
            b"\x0d\x00",
            &endless,
            &above,
            field_above,
        ] {
            assert_eq!(Reader::new(refused).next(), Err(Malformed), "{refused:02x?}");
        }
    }
}
