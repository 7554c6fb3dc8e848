//! Frames, in which commands stand: their layout, and the reading of what a broker sends.
//!
//! Owns: sizes, kinds of commands, where the entry behind a command begins.
//! Never: judges whether a command may come now.

use super::protobuf::{self, Fields, Value};

/// The largest frame that is read or sent: an entry of the largest batch, and room for what stands before it.
pub const FRAME_BYTES_MAXIMUM: usize = 1 << 20;

/// What the broker takes beyond the batch: command, metadata, sizes.
pub const ROOM_BYTES: usize = 1_024;

/// What an entry begins with: it has a checksum.
pub const MAGIC: [u8; 2] = [0x0e, 0x01];

/// Bytes of a size.
const SIZE_BYTES: usize = 4;

pub const CONNECT: u8 = 2;
pub const CONNECTED: u8 = 3;
pub const SUBSCRIBE: u8 = 4;
pub const PRODUCER: u8 = 5;
pub const SEND: u8 = 6;
pub const SEND_RECEIPT: u8 = 7;
pub const SEND_ERROR: u8 = 8;
pub const MESSAGE: u8 = 9;
pub const ACK: u8 = 10;
pub const FLOW: u8 = 11;
pub const SUCCESS: u8 = 13;
pub const ERROR: u8 = 14;
pub const PRODUCER_SUCCESS: u8 = 17;
pub const PING: u8 = 18;
pub const PONG: u8 = 19;
pub const LOOKUP: u8 = 23;
pub const LOOKUP_RESPONSE: u8 = 24;
pub const ACTIVE_CONSUMER_CHANGE: u8 = 31;

/// A frame that a broker sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of its command.
    pub kind: u8,
    /// The command's fields.
    pub fields: &'a [u8],
    /// What stands behind the command.
    pub tail: &'a [u8],
}

/// The first frame of `bytes` and how many bytes it takes; nothing if it is not whole yet, an error if it is none.
pub fn scan(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, &'static str> {
    let Some((total, rest)) = bytes.split_first_chunk::<SIZE_BYTES>() else { return Ok(None) };
    let total = u32::from_be_bytes(*total) as usize;
    if total > FRAME_BYTES_MAXIMUM {
        return Err("a frame larger than any that was sent");
    }
    let Some(frame) = rest.get(..total) else { return Ok(None) };
    let cut = "a frame shorter than its command";
    let (size, rest) = frame.split_first_chunk::<SIZE_BYTES>().ok_or(cut)?;
    let (command, tail) = rest.split_at_checked(u32::from_be_bytes(*size) as usize).ok_or(cut)?;
    // A command begins with its kind; its fields stand in the field that has the kind's number.
    let mut command = Fields(command);
    let Some((1, Value::Number(kind))) = command.next() else { return Err("a command of no kind") };
    let fields = command.find_map(|(field, value)| match value {
        Value::Bytes(fields) if u64::from(field) == kind => Some(fields),
        _ => None,
    });
    let kind = u8::try_from(kind).map_err(|_| "a command of no kind")?;
    Ok(Some((Frame { kind, fields: fields.ok_or("a command without its fields")?, tail }, SIZE_BYTES + total)))
}

/// Appends a frame with a command of these fields, behind which the caller appends a tail of so many bytes.
pub fn put(into: &mut Vec<u8>, kind: u8, fields: &[u8], tail_bytes: usize) {
    let start = into.len();
    into.extend_from_slice(&[0; 2 * SIZE_BYTES]);
    protobuf::put_number(into, 1, u64::from(kind));
    protobuf::put_bytes(into, u32::from(kind), fields);
    let command = into.len() - start - 2 * SIZE_BYTES;
    let total = SIZE_BYTES + command + tail_bytes;
    into[start..start + SIZE_BYTES].copy_from_slice(&(total as u32).to_be_bytes());
    into[start + SIZE_BYTES..start + 2 * SIZE_BYTES].copy_from_slice(&(command as u32).to_be_bytes());
}

/// A sentence about a frame of a broker that says no.
pub fn sentence(frame: &Frame<'_>) -> String {
    let (code, text) = if frame.kind == SEND_ERROR { (3, 4) } else { (2, 3) };
    let said = String::from_utf8_lossy(protobuf::bytes(frame.fields, text)).into_owned();
    format!("error {}: {said}", protobuf::number(frame.fields, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_is_none_before_it_is_whole() {
        let mut out = Vec::new();
        put(&mut out, SEND, b"\x08\x01", 4);
        out.extend_from_slice(b"tail");
        let frame = Frame { kind: SEND, fields: b"\x08\x01", tail: b"tail" };
        assert_eq!(scan(&out), Ok(Some((frame, out.len()))));
        for end in 0..out.len() {
            assert_eq!(scan(&out[..end]), Ok(None), "cut at {end}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for nonsense in [b"\xff\xff\xff\xff\0\0\0\0".as_slice(), b"\0\0\0\x04\0\0\0\x09", b"\0\0\0\x04\0\0\0\0"] {
            assert!(scan(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let mut fields = Vec::new();
        protobuf::put_number(&mut fields, 1, 7);
        protobuf::put_number(&mut fields, 2, 5);
        protobuf::put_bytes(&mut fields, 3, b"taken");
        let mut out = Vec::new();
        put(&mut out, ERROR, &fields, 0);
        let (frame, _) = scan(&out).unwrap().unwrap();
        assert_eq!(sentence(&frame), "error 5: taken");
    }
}
