//! An entry as it comes: whether it has the checksum that it came with, and what it says of itself.
//!
//! Invariant: the checksum is computed once, and nothing is read of an entry that does not have it.

use super::command::Sent;
use super::fault::Fault;
use crate::entry::{key_hash, metadata, MAGIC, MILLISECOND_US};
use crate::flow::entry::{EntryParts, CHECKED_FROM};
use crate::ids::Timestamp;
use crate::limits::ENTRY_MESSAGES_MAXIMUM;
use std::ops::Range;

/// An entry in the arena, from the bytes that say that it has a checksum on.
#[derive(Clone, Debug)]
pub struct Tail {
    /// Where it lies.
    pub range: Range<usize>,
    /// Its checksum, as it was computed.
    checksum: u32,
    /// It came with another one.
    pub is_damaged: bool,
}

impl Tail {
    /// Computes the checksum of what lies there. Old clients send none: their entry is copied behind one, so that a
    /// stored entry always has it.
    #[inline]
    pub fn check(bytes: &mut Vec<u8>, range: Range<usize>) -> Tail {
        let tail = bytes.get(range.clone()).unwrap_or_default();
        if let Some(behind) = tail.strip_prefix(&MAGIC) {
            let said = behind.first_chunk::<4>().map(|said| u32::from_be_bytes(*said));
            let checksum = crate::checksum::of(tail.get(CHECKED_FROM..).unwrap_or_default());
            // One that ends before its checksum has none that could be wrong, and is no entry.
            return Tail { range, checksum, is_damaged: said.is_some_and(|said| said != checksum) };
        }
        let checksum = crate::checksum::of(tail);
        let start = bytes.len();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_within(range);
        Tail { range: start..bytes.len(), checksum, is_damaged: false }
    }

    /// What there is to be known of the entry besides its bytes; a fault if they are no entry.
    #[inline]
    pub fn parts(&self, tail: &[u8], sent: &Sent) -> Result<EntryParts, Fault> {
        let (mut count, mut highest, mut key, mut not_before) = (1, sent.highest_sequence_id, None, None);
        let mut opened_bytes = 0;
        if self.is_damaged {
            count = sent.messages.unwrap_or(1).clamp(1, ENTRY_MESSAGES_MAXIMUM);
        } else {
            let (said, _) = metadata(tail).ok_or(Fault::new("an entry that is not what it says"))?;
            count = said.messages.unwrap_or(count);
            if sent.messages.is_some_and(|messages| messages != count) {
                return Err(Fault::new("an entry with another number of messages than its command says"));
            }
            highest = highest.or(said.highest_sequence_id);
            key = key_hash(&said);
            opened_bytes = said.uncompressed_size;
            let time_ms = said.deliver_at_ms.and_then(|time_ms| u64::try_from(time_ms).ok());
            not_before = time_ms.filter(|time_ms| *time_ms > 0);
        }
        let computed = sent.sequence_id.saturating_add(u64::from(count.saturating_sub(1)));
        Ok(EntryParts {
            producer: sent.producer,
            sequence_first: sent.sequence_id,
            sequence_last: highest.filter(|highest| *highest >= sent.sequence_id).unwrap_or(computed),
            count,
            key_hash: key,
            not_before: not_before.map(|time_ms| Timestamp(time_ms.saturating_mul(MILLISECOND_US))),
            opened_bytes,
            checksum: self.checksum,
        })
    }
}
