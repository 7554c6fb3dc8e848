//! The messages of an entry, each with what travels with it.
//!
//! Owns: memory that is used for one entry after the other. Never: an entry that is encrypted, or a part of a message.

use super::message::MILLISECOND_US;
use super::metadata::{metadata, Metadata, Single};
use super::properties::{is_text, put_travelling, Besides};
use super::{base64, Closed};
use crate::flow::Span;
use crate::ids::Timestamp;
use crate::limits::ENTRY_OPENED_BYTES_KEPT;

/// An entry that was opened, as memory to use again.
#[derive(Debug, Default)]
pub struct Opened {
    /// The payload of the entry, its compression undone.
    payload: Vec<u8>,
    /// Properties and keys.
    made: Vec<u8>,
    messages: Vec<Parts>,
}

/// Where the parts of a message lie.
#[derive(Debug, Clone, Copy)]
struct Parts {
    payload: Span,
    properties: Span,
    key: Option<Span>,
    event_time: Option<Timestamp>,
    retain: bool,
    is_null: bool,
}

/// A message of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerMessage<'a> {
    /// What travels with it, as in [`crate::flow::Publish::properties`].
    pub properties: &'a [u8],
    /// What it says.
    pub payload: &'a [u8],
    /// Its key, its Base64 undone.
    pub key: Option<&'a [u8]>,
    /// When what it tells happened.
    pub event_time: Option<Timestamp>,
    /// It was published with the RETAIN flag.
    pub retain: bool,
    /// It has no value, which is not the same as an empty one.
    pub is_null: bool,
}

/// What is read of a message before it is written down.
struct Read<'a> {
    payload: Span,
    partition_key: Option<&'a [u8]>,
    partition_key_b64: bool,
    event_time_ms: Option<u64>,
    is_null: bool,
}

impl Opened {
    /// How many messages the entry has.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if nothing has been opened.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// One of its messages, the first with index 0.
    pub fn message(&self, index: usize) -> Option<InnerMessage<'_>> {
        let parts = self.messages.get(index)?;
        Some(InnerMessage {
            properties: of(&self.made, parts.properties),
            payload: of(&self.payload, parts.payload),
            key: parts.key.map(|key| of(&self.made, key)),
            event_time: parts.event_time,
            retain: parts.retain,
            is_null: parts.is_null,
        })
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.payload.clear();
        self.made.clear();
        for memory in [&mut self.payload, &mut self.made] {
            if memory.capacity() > ENTRY_OPENED_BYTES_KEPT {
                *memory = Vec::new();
            }
        }
    }

    fn fill(&mut self, tail: &[u8]) -> Result<(), Closed> {
        let (metadata, payload_from) = metadata(tail).ok_or(Closed::Malformed)?;
        if metadata.is_encrypted {
            return Err(Closed::Encrypted);
        }
        if metadata.is_chunk {
            return Err(Closed::Chunk);
        }
        let payload = tail.get(payload_from..).unwrap_or_default();
        metadata.compression.undo(payload, metadata.uncompressed_size, &mut self.payload)?;
        match metadata.messages {
            None => self.add_only(&metadata),
            Some(count) => self.add_batch(count),
        }
        .ok_or(Closed::Malformed)
    }

    /// The entry is a single message.
    fn add_only(&mut self, metadata: &Metadata<'_>) -> Option<()> {
        let payload_bytes = if metadata.null_value { 0 } else { self.payload.len() };
        let read = Read {
            payload: span(0, payload_bytes)?,
            partition_key: metadata.partition_key,
            partition_key_b64: metadata.partition_key_b64,
            event_time_ms: metadata.event_time_ms,
            is_null: metadata.null_value,
        };
        let parts = read.write(metadata.properties(), &mut self.made)?;
        self.messages.push(parts);
        Some(())
    }

    /// The entry is a batch of so many messages.
    fn add_batch(&mut self, count: u32) -> Option<()> {
        let mut rest = self.payload.as_slice();
        for _ in 0..count {
            let (size, behind) = rest.split_first_chunk::<4>()?;
            let (single, behind) = behind.split_at_checked(usize::try_from(u32::from_be_bytes(*size)).ok()?)?;
            let single = Single::read(single).ok()?;
            let start = self.payload.len() - behind.len();
            (_, rest) = behind.split_at_checked(single.payload_bytes)?;
            let read = Read {
                payload: span(start, if single.null_value { 0 } else { single.payload_bytes })?,
                partition_key: single.partition_key,
                partition_key_b64: single.partition_key_b64,
                event_time_ms: single.event_time_ms,
                is_null: single.null_value,
            };
            self.messages.push(read.write(single.properties(), &mut self.made)?);
        }
        Some(())
    }
}

impl Read<'_> {
    /// Writes down what travels with the message, and its key.
    fn write<'a>(
        &self,
        properties: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        made: &mut Vec<u8>,
    ) -> Option<Parts> {
        let decoded = self.partition_key.filter(|_| self.partition_key_b64).and_then(base64::decode);
        let key = decoded.as_deref().or(self.partition_key);
        // A key that is no text travels as it was written.
        let text = key.filter(|key| is_text(key)).or(self.partition_key);
        let besides = Besides { key: text, event_time_ms: self.event_time_ms, is_null: self.is_null };
        let start = made.len();
        let retain = put_travelling(properties, &besides, made);
        let key_start = made.len();
        made.extend_from_slice(key.unwrap_or_default());
        let key = match key {
            Some(key) => Some(span(key_start, key.len())?),
            None => None,
        };
        Some(Parts {
            payload: self.payload,
            properties: span(start, key_start - start)?,
            key,
            event_time: self.event_time_ms.map(|time| Timestamp(time.saturating_mul(MILLISECOND_US))),
            retain,
            is_null: self.is_null,
        })
    }
}

/// Opens an entry in place of the one that was opened before; nothing is in `into` if it stays closed.
pub fn open(tail: &[u8], into: &mut Opened) -> Result<(), Closed> {
    into.clear();
    let filled = into.fill(tail);
    if filled.is_err() {
        into.clear();
    }
    filled
}

fn span(start: usize, size: usize) -> Option<Span> {
    Some(Span { start: u32::try_from(start).ok()?, size_bytes: u32::try_from(size).ok()? })
}

fn of(bytes: &[u8], span: Span) -> &[u8] {
    let start = usize::try_from(span.start).unwrap_or(usize::MAX);
    let size = usize::try_from(span.size_bytes).unwrap_or(usize::MAX);
    start.checked_add(size).and_then(|end| bytes.get(start..end)).unwrap_or_default()
}
