//! A message written as an entry of its own, for who wants entries.

use super::{properties, MAGIC};
use crate::flow::entry::CHECKED_FROM;
use crate::flow::Message;
use crate::protobuf::{put_bytes, put_varint};

/// Microseconds in a millisecond, the unit of the times in metadata.
pub const MILLISECOND_US: u64 = 1_000;

/// Appends a message as a tail: its metadata says that `producer_name` sent it under this number when it was stored.
pub fn of_message(message: &Message<'_>, producer_name: &[u8], sequence: u64, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend_from_slice(&MAGIC);
    // The checksum and the size of the metadata, which are known only behind it.
    into.extend_from_slice(&[0; 8]);
    let metadata_start = into.len();
    put_bytes(into, 1, producer_name);
    put_varint(into, 2, sequence);
    put_varint(into, 3, message.appended_at.0 / MILLISECOND_US);
    properties::put_fields(message.properties, message.retain, into);
    let size = u32::try_from(into.len() - metadata_start).unwrap_or(u32::MAX);
    into.extend_from_slice(message.payload);
    write_at(into, start + CHECKED_FROM, size);
    let checksum = crate::checksum::of(into.get(start + CHECKED_FROM..).unwrap_or_default());
    write_at(into, start + MAGIC.len(), checksum);
}

fn write_at(into: &mut [u8], at: usize, number: u32) {
    if let Some(bytes) = into.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<4>()) {
        *bytes = number.to_be_bytes();
    }
}
