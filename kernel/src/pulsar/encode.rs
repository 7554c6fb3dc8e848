//! What answers entries, and what carries them: commands as frames.
//!
//! Owns: the field numbers of these commands. Never: looks into an entry.

use super::command::kind;
use crate::flow::entry::{Receipt, Reply};
use crate::flow::Refusal;
use crate::protobuf::{put_bytes, put_message, put_varint};

/// Numbers of errors.
mod error {
    pub const PERSISTENCE: u64 = 2;
    pub const AUTHORIZATION: u64 = 4;
    pub const CHECKSUM: u64 = 9;
}

/// Where a message id points.
#[derive(Debug, Clone, Copy)]
pub struct MessageId {
    /// The topic's number.
    pub ledger: u64,
    /// The entry's number in it.
    pub entry: u64,
}

impl MessageId {
    fn put(self, out: &mut Vec<u8>, field: u32) {
        put_message(out, field, |out| {
            put_varint(out, 1, self.ledger);
            put_varint(out, 2, self.entry);
        });
    }
}

/// Appends a frame with the command of this number, whose fields `write` appends, and what follows it.
fn put_frame(out: &mut Vec<u8>, kind: u64, tail: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    put_varint(out, 1, kind);
    // The fields of a command stand under its own number.
    put_message(out, u32::try_from(kind).unwrap_or_default(), write);
    let command = out.len().saturating_sub(start).saturating_sub(8);
    out.extend_from_slice(tail);
    let total = out.len().saturating_sub(start).saturating_sub(4);
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(head) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        let (first, second) = head.split_at_mut(4);
        first.copy_from_slice(&size(total));
        second.copy_from_slice(&size(command));
    }
}

/// What became of an entry: SEND_RECEIPT, or SEND_ERROR.
pub fn put_receipt(out: &mut Vec<u8>, receipt: &Receipt) {
    let Some(refusal) = receipt.refusal else {
        return put_frame(out, kind::SEND_RECEIPT, &[], |out| {
            put_varint(out, 1, receipt.producer);
            put_varint(out, 2, receipt.sequence_first);
            MessageId { ledger: u64::from(receipt.topic.0), entry: receipt.entry }.put(out, 3);
            put_varint(out, 4, receipt.sequence_last);
        });
    };
    let (error, sentence) = match refusal {
        Refusal::Damaged => (error::CHECKSUM, "the entry does not have the checksum that it came with"),
        Refusal::NotAuthorized => (error::AUTHORIZATION, "this client may not publish to the topic"),
        _ => (error::PERSISTENCE, "the log has no room for the entry"),
    };
    put_frame(out, kind::SEND_ERROR, &[], |out| {
        put_varint(out, 1, receipt.producer);
        put_varint(out, 2, receipt.sequence_first);
        put_varint(out, 3, error);
        put_bytes(out, 4, sentence.as_bytes());
    });
}

/// An entry for a consumer: MESSAGE.
pub fn put_entry(out: &mut Vec<u8>, consumer: u64, id: MessageId, redeliveries: u16, tail: &[u8]) {
    put_frame(out, kind::MESSAGE, tail, |out| {
        put_varint(out, 1, consumer);
        id.put(out, 2);
        put_varint(out, 3, u64::from(redeliveries));
    });
}

/// What a consumer said is durable: ACK_RESPONSE.
pub fn put_reply(out: &mut Vec<u8>, consumer: u64, reply: &Reply) {
    put_frame(out, kind::ACK_RESPONSE, &[], |out| {
        put_varint(out, 1, consumer);
        put_varint(out, 6, reply.request);
    });
}

/// Somebody is there: PONG.
pub fn put_pong(out: &mut Vec<u8>) {
    put_frame(out, kind::PONG, &[], |_| {});
}
