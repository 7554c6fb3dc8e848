//! What an entry says of itself: its metadata, read where it stands.
//!
//! Owns: the fields of an entry's metadata and of the metadata of a message in a batch. Never: copies what it reads.
//!
//! Invariant: metadata without a field that every entry must have is refused, like metadata that says that there are
//! more messages than bytes.

use super::{base64, Compression, MAGIC};
use crate::flow::entry::CHECKED_FROM;
use crate::limits::ENTRY_MESSAGES_MAXIMUM;
use crate::protobuf::{low_half, Malformed, Reader, Value};
use crate::selection::murmur3_32;

/// Where the metadata begins: behind its size.
const METADATA_FROM: usize = CHECKED_FROM + 4;

/// The fewest bytes of a message in a batch: the size of its metadata.
const MESSAGE_BYTES_MINIMUM: u64 = 4;

/// What an entry says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata<'a> {
    /// Who made it.
    pub producer_name: &'a [u8],
    /// The number that its producer gave its first message.
    pub sequence_id: u64,
    /// The number of its last message, where that is said.
    pub highest_sequence_id: Option<u64>,
    /// When its producer sent it.
    pub publish_time_ms: u64,
    /// When what it tells happened.
    pub event_time_ms: Option<u64>,
    /// Its key, as it is written.
    pub partition_key: Option<&'a [u8]>,
    /// Its key is written in Base64.
    pub partition_key_b64: bool,
    /// The key by which its order is kept, in place of the other.
    pub ordering_key: Option<&'a [u8]>,
    /// How its payload is compressed.
    pub compression: Compression,
    /// The size of its payload before that; 0 if it is not compressed, whatever is said.
    pub uncompressed_size: u32,
    /// How many messages are in it; `None` if it is one by itself, which is not the same as a batch of one.
    pub messages: Option<u32>,
    /// Not to be given to anybody before this time.
    pub deliver_at_ms: Option<i64>,
    /// Its payload is encrypted.
    pub is_encrypted: bool,
    /// It is one of several that make up one message.
    pub is_chunk: bool,
    /// It has no value, which is not the same as an empty one.
    pub null_value: bool,
    /// The version of the schema of its value.
    pub schema_version: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> Metadata<'a> {
    /// Its properties in order, name and value.
    pub fn properties(&self) -> Properties<'a> {
        Properties { reader: Reader::new(self.bytes), field: 4 }
    }

    #[inline(always)] // What nobody asks for is not put together.
    fn read(bytes: &'a [u8]) -> Result<Option<Metadata<'a>>, Malformed> {
        let mut read = Metadata { bytes, ..Metadata::default() };
        let (mut compression, mut messages, mut uncompressed_size) = (0, None, 0);
        let (mut has_name, mut has_sequence_id, mut has_time, mut has_no_key) = (false, false, false, false);
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Bytes(name)) => (read.producer_name, has_name) = (name, true),
                (2, Value::Varint(id)) => (read.sequence_id, has_sequence_id) = (id, true),
                (3, Value::Varint(time)) => (read.publish_time_ms, has_time) = (time, true),
                (4, Value::Bytes(pair)) => _ = property(pair)?,
                (6, Value::Bytes(key)) => read.partition_key = Some(key),
                (8, Value::Varint(number)) => compression = number,
                (9, Value::Varint(size)) => uncompressed_size = low_half(size),
                (11, Value::Varint(count)) => messages = Some(low_half(count)),
                (12, Value::Varint(time)) => read.event_time_ms = Some(time).filter(|time| *time != 0),
                (13, Value::Bytes(_)) => read.is_encrypted = true,
                (16, Value::Bytes(version)) => read.schema_version = Some(version),
                (17, Value::Varint(is_so)) => read.partition_key_b64 = is_so != 0,
                (18, Value::Bytes(key)) => read.ordering_key = Some(key),
                (19, Value::Varint(time)) => read.deliver_at_ms = Some(i64::from_le_bytes(time.to_le_bytes())),
                (24, Value::Varint(id)) => read.highest_sequence_id = Some(id),
                (25, Value::Varint(is_so)) => read.null_value = is_so != 0,
                (27, Value::Varint(count)) => read.is_chunk = (2..1 << 31).contains(&low_half(count)),
                (30, Value::Varint(is_so)) => has_no_key = is_so != 0,
                _ => {}
            }
        }
        let known = Compression::from_number(compression);
        let (Some(compression), true) = (known, has_name && has_sequence_id && has_time) else { return Ok(None) };
        read.uncompressed_size = if compression == Compression::None { 0 } else { uncompressed_size };
        read.compression = compression;
        read.messages = messages;
        if has_no_key {
            read.partition_key = None;
        }
        Ok(Some(read))
    }

    /// True if there may be as many messages as it says in a payload of so many bytes.
    fn counts_right(&self, payload_bytes: usize) -> bool {
        let Some(count) = self.messages else { return true };
        let bytes = match self.compression {
            Compression::None => u64::try_from(payload_bytes).unwrap_or(u64::MAX),
            _ => u64::from(self.uncompressed_size),
        };
        (1..=ENTRY_MESSAGES_MAXIMUM).contains(&count) && u64::from(count) * MESSAGE_BYTES_MINIMUM <= bytes
    }
}

/// What an entry says of itself, and where its payload begins; `None` if that cannot be told, or cannot be.
#[inline(always)] // As above.
pub fn metadata(tail: &[u8]) -> Option<(Metadata<'_>, usize)> {
    if !tail.starts_with(&MAGIC) {
        return None;
    }
    let (size, rest) = tail.get(CHECKED_FROM..)?.split_first_chunk::<4>()?;
    let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
    let (bytes, payload) = rest.split_at_checked(size)?;
    let read = Metadata::read(bytes).ok()??;
    read.counts_right(payload.len()).then_some((read, METADATA_FROM + size))
}

/// MurmurHash3 (x86, 32 bit, seed 0) of the key by which an entry's order is kept, or else of its key.
#[inline(always)] // As above.
pub fn key_hash(metadata: &Metadata<'_>) -> Option<u32> {
    if let Some(key) = metadata.ordering_key {
        return Some(murmur3_32(key));
    }
    let key = metadata.partition_key?;
    let decoded = if metadata.partition_key_b64 { base64::decode(key) } else { None };
    Some(murmur3_32(decoded.as_deref().unwrap_or(key)))
}

/// What a message in a batch says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Single<'a> {
    pub partition_key: Option<&'a [u8]>,
    pub partition_key_b64: bool,
    pub payload_bytes: usize,
    pub event_time_ms: Option<u64>,
    pub null_value: bool,
    bytes: &'a [u8],
}

impl<'a> Single<'a> {
    /// Its properties in order, name and value.
    pub fn properties(&self) -> Properties<'a> {
        Properties { reader: Reader::new(self.bytes), field: 1 }
    }

    pub fn read(bytes: &'a [u8]) -> Result<Single<'a>, Malformed> {
        let mut read = Single { bytes, ..Single::default() };
        let (mut payload_bytes, mut has_no_key) = (None, false);
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Bytes(pair)) => _ = property(pair)?,
                (2, Value::Bytes(key)) => read.partition_key = Some(key),
                (3, Value::Varint(size)) => payload_bytes = Some(low_half(size)),
                (5, Value::Varint(time)) => read.event_time_ms = Some(time).filter(|time| *time != 0),
                (6, Value::Varint(is_so)) => read.partition_key_b64 = is_so != 0,
                (9, Value::Varint(is_so)) => read.null_value = is_so != 0,
                (10, Value::Varint(is_so)) => has_no_key = is_so != 0,
                _ => {}
            }
        }
        read.payload_bytes = usize::try_from(payload_bytes.ok_or(Malformed)?).map_err(|_| Malformed)?;
        if has_no_key {
            read.partition_key = None;
        }
        Ok(read)
    }
}

/// Walks over the properties in metadata.
#[derive(Debug, Clone)]
pub struct Properties<'a> {
    reader: Reader<'a>,
    field: u32,
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.reader.next().ok()?? {
                (field, Value::Bytes(pair)) if field == self.field => return property(pair).ok(),
                _ => {}
            }
        }
    }
}

/// The name and the value of a property, both of which it must have.
fn property(pair: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut name, mut value) = (None, None);
    let mut reader = Reader::new(pair);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Bytes(text)) => name = Some(text),
            (2, Value::Bytes(text)) => value = Some(text),
            _ => {}
        }
    }
    name.zip(value).ok_or(Malformed)
}
