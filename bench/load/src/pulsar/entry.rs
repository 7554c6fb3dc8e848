//! An entry that is encoded once and sent again and again, and the reading of one.
//!
//! ```text
//! magic | checksum | size of the metadata | metadata | payload
//! payload of a batch, for each message: size of its metadata | its metadata | what it says
//! ```
//!
//! What is new in each entry, its metadata and the stamp of its first message, stands in front of what is not. So the
//! checksum is that of the front, moved by a table over the rest, and the rest's own, which never changes.

use super::frame::{self, MAGIC};
use super::protobuf::{self, Fields, Value};
use crate::stamp::{Stamp, STAMP_BYTES};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the front takes at most: a command, magic, checksum, metadata, a stamp.
const FRONT_BYTES: usize = 192;

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// What all entries of a producer have in common.
pub struct Entry {
    producer_name: String,
    producer: u32,
    /// 0 if messages are sent singly.
    batch: u64,
    /// Before the first message's stamp, if it is one of a batch: its metadata.
    first: Vec<u8>,
    rest: Rest,
    payload_bytes: usize,
    started_ms: u64,
    /// Memory that is used again for each entry.
    fields: Vec<u8>,
    front: Vec<u8>,
}

impl Entry {
    /// Encodes a message, or `batch` of them, of so many bytes each.
    pub fn new(producer_name: &str, producer: u32, batch: u64, message_bytes: usize) -> Self {
        let message = vec![b'.'; message_bytes.max(STAMP_BYTES)];
        let mut first = Vec::new();
        if batch > 0 {
            let mut metadata = Vec::new();
            protobuf::put_number(&mut metadata, 3, message.len() as u64);
            first.extend_from_slice(&(metadata.len() as u32).to_be_bytes());
            first.extend_from_slice(&metadata);
        }
        let mut rest = message[STAMP_BYTES..].to_vec();
        for _ in 1..batch {
            rest.extend_from_slice(&first);
            rest.extend_from_slice(&message);
        }
        let started_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        Self {
            producer_name: producer_name.into(),
            producer,
            batch,
            payload_bytes: first.len() + STAMP_BYTES + rest.len(),
            first,
            rest: Rest::new(rest),
            started_ms,
            fields: vec![],
            front: vec![],
        }
    }

    /// The size of one SEND on the wire, at most.
    pub fn size_bytes(&self) -> usize {
        FRONT_BYTES + self.first.len() + self.rest.bytes.len()
    }

    /// How many messages it has.
    pub fn messages(&self) -> u64 {
        self.batch.max(1)
    }

    /// Appends SEND of the entry whose first message has this number.
    pub fn encode(&mut self, producer_id: u64, number: u64, sent_ns: u64, outbox: &mut Vec<u8>) {
        let Self { fields, front, batch, .. } = self;
        fields.clear();
        protobuf::put_number(fields, 1, producer_id);
        protobuf::put_number(fields, 2, number);
        front.clear();
        front.extend_from_slice(&[0; 4]);
        protobuf::put_bytes(front, 1, self.producer_name.as_bytes());
        protobuf::put_number(front, 2, number);
        protobuf::put_number(front, 3, self.started_ms + sent_ns / NANOSECONDS_PER_MILLISECOND);
        protobuf::put_number(front, 9, self.payload_bytes as u64);
        if *batch > 0 {
            protobuf::put_number(fields, 3, *batch);
            protobuf::put_number(front, 11, *batch);
        }
        let metadata_bytes = (front.len() - 4) as u32;
        front[..4].copy_from_slice(&metadata_bytes.to_be_bytes());
        front.extend_from_slice(&self.first);
        front.extend_from_slice(&Stamp { publisher: self.producer, number, sent_ns }.encode());
        let checksum = self.rest.checksum_behind(crc32c::crc32c(front));
        frame::put(outbox, frame::SEND, fields, MAGIC.len() + 4 + front.len() + self.rest.bytes.len());
        outbox.extend_from_slice(&MAGIC);
        outbox.extend_from_slice(&checksum.to_be_bytes());
        outbox.extend_from_slice(front);
        outbox.extend_from_slice(&self.rest.bytes);
    }
}

/// Bytes at the end of each entry, and what a checksum becomes by going on over them.
struct Rest {
    bytes: Vec<u8>,
    checksum: u32,
    /// For each byte of a checksum what its values become behind as many bytes of zeros.
    moved: [[u32; 256]; 4],
}

impl Rest {
    fn new(bytes: Vec<u8>) -> Self {
        let checksum = crc32c::crc32c(&bytes);
        let mut moved = [[0; 256]; 4];
        for (place, values) in moved.iter_mut().enumerate() {
            // A checksum is linear, so that eight values tell all others.
            for bit in 0..8 {
                let behind = crc32c::crc32c_combine(1 << (8 * place + bit), 0, bytes.len());
                for value in 0..1 << bit {
                    values[value | 1 << bit] = values[value] ^ behind;
                }
            }
        }
        Self { bytes, checksum, moved }
    }

    /// The checksum of something with this one and these bytes behind it.
    fn checksum_behind(&self, front: u32) -> u32 {
        let bytes = front.to_le_bytes();
        let moved = bytes.iter().zip(&self.moved).map(|(byte, values)| values[usize::from(*byte)]);
        moved.fold(self.checksum, |together, value| together ^ value)
    }
}

/// The stamp of an entry's first message and how many it has; nothing if it is not ours.
pub fn read(tail: &[u8]) -> Option<(Stamp, u64)> {
    let (_checksum, rest) = tail.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
    let (metadata, payload) = split_sized(rest)?;
    let batch = Fields(metadata).find_map(|field| match field {
        (11, Value::Number(count)) => Some(count),
        _ => None,
    });
    let message = if batch.is_some() { split_sized(payload)?.1 } else { payload };
    Some((Stamp::decode(message)?, batch.unwrap_or(1)))
}

/// What a size in front counts, and what is behind that.
fn split_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*size) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_with_the_checksum_of_what_is_in_it() {
        for (batch, bytes) in [(0, 20), (0, 100), (0, 65_536), (1, 100), (1_000, 100), (7, 1)] {
            let mut entry = Entry::new("publisher-7", 7, batch, bytes);
            for number in [0, 1 << 40] {
                let mut out = Vec::new();
                entry.encode(0, number, 5_000_000, &mut out);
                let (found, used) = frame::scan(&out).unwrap().unwrap();
                assert_eq!((found.kind, used), (frame::SEND, out.len()));
                assert!(out.len() <= entry.size_bytes());
                assert_eq!(protobuf::number(found.fields, 2), number);
                assert_eq!(protobuf::number(found.fields, 3), batch);
                let checksum = u32::from_be_bytes(found.tail[2..6].try_into().unwrap());
                assert_eq!(checksum, crc32c::crc32c(&found.tail[6..]), "{batch} of {bytes}");
                let stamp = Stamp { publisher: 7, number, sent_ns: 5_000_000 };
                assert_eq!(read(found.tail), Some((stamp, batch.max(1))));
            }
        }
    }

    #[test]
    fn a_batch_is_as_the_protocol_draws_it() {
        let mut out = Vec::new();
        Entry::new("a", 0, 2, 20).encode(0, 0, 0, &mut out);
        let (found, _) = frame::scan(&out).unwrap().unwrap();
        let (_, mut payload) = split_sized(&found.tail[6..]).unwrap();
        for _ in 0..2 {
            let (metadata, rest) = split_sized(payload).unwrap();
            assert_eq!(protobuf::number(metadata, 3), 20);
            payload = &rest[20..];
        }
        assert!(payload.is_empty());
    }
}
