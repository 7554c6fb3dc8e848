//! Fields as Protobuf writes them: a number, how the value is written, the value.
//!
//! Never: knows what a field means, or allocates for what it reads.

/// The value of a field; four and eight bytes in a row do not occur in what a broker sends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, a truth value or an enumeration.
    Number(u64),
    /// Text, bytes, or the fields of a message.
    Bytes(&'a [u8]),
}

/// The fields of a message in their order, until the end or the first that is none.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            2 => {
                let size = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(size)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some(((tag >> 3) as u32, value))
    }
}

impl Fields<'_> {
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (&byte, rest) = self.0.split_first()?;
        if byte >= 0x80 {
            return self.long_number();
        }
        self.0 = rest;
        Some(byte.into())
    }

    /// One of more than one byte.
    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// The number in a field of a message; 0 if it is not there.
#[inline]
pub fn number(message: &[u8], field: u32) -> u64 {
    Fields(message)
        .find_map(
            |found| if let (true, Value::Number(number)) = (found.0 == field, found.1) { Some(number) } else { None },
        )
        .unwrap_or(0)
}

/// The bytes in a field of a message; none if it is not there.
#[inline]
pub fn bytes(message: &[u8], field: u32) -> &[u8] {
    Fields(message)
        .find_map(
            |found| if let (true, Value::Bytes(bytes)) = (found.0 == field, found.1) { Some(bytes) } else { None },
        )
        .unwrap_or_default()
}

/// Appends a number as Protobuf writes it.
fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Appends a field that is a number.
pub fn put_number(into: &mut Vec<u8>, field: u32, number: u64) {
    put(into, u64::from(field) << 3);
    put(into, number);
}

/// Appends a field that is text or bytes.
pub fn put_bytes(into: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put(into, u64::from(field) << 3 | 2);
    put(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_encoding_says() {
        let mut out = Vec::new();
        put_number(&mut out, 1, 150);
        put_bytes(&mut out, 2, b"testing");
        assert_eq!(out, b"\x08\x96\x01\x12\x07testing");
    }

    #[test]
    fn fields_read_back() {
        let mut out = Vec::new();
        put_number(&mut out, 4, u64::MAX);
        put_bytes(&mut out, 500, b"a");
        assert_eq!(Fields(&out).collect::<Vec<_>>(), [(4, Value::Number(u64::MAX)), (500, Value::Bytes(b"a"))]);
        assert_eq!((number(&out, 4), bytes(&out, 500), number(&out, 5)), (u64::MAX, b"a".as_slice(), 0));
    }

    #[test]
    fn what_is_cut_short_ends() {
        for cut in [b"\x08".as_slice(), b"\x08\x80", b"\x12\x02a", b"\x0b"] {
            assert_eq!(Fields(cut).next(), None);
        }
    }
}
