//! What answers entries and what consumers say, as frames.

use super::frame::HEADER_BYTES;
use super::kind;
use crate::flow::entry::{Receipt, Reply};
use crate::flow::Refusal;
use crate::ids::TopicId;
use crate::protobuf::{put_bytes, put_message, put_varint};

/// Bytes of each of the two sizes of a frame.
const SIZE_BYTES: usize = HEADER_BYTES / 2;

/// Which error an entry is refused with (ServerError), and the sentence that goes with it.
fn error_of(refusal: Refusal) -> (u64, &'static [u8]) {
    match refusal {
        Refusal::NotAuthorized => (4, b"The user's rules do not allow to publish to this topic any more."),
        Refusal::Damaged => (9, b"The message does not have the checksum that it came with."),
        Refusal::NoRoom | Refusal::NotInFlight | Refusal::ByPeer => (2, b"The log has no room for the message."),
    }
}

/// Appends SEND_RECEIPT, or SEND_ERROR for what was refused.
#[inline]
pub fn put_receipt(into: &mut Vec<u8>, receipt: &Receipt) {
    let Receipt { producer, sequence_first, sequence_last, topic, entry, refusal, .. } = *receipt;
    let kind = if refusal.is_some() { kind::SEND_ERROR } else { kind::SEND_RECEIPT };
    put_frame(into, kind, no_tail, |into| {
        put_varint(into, 1, producer);
        put_varint(into, 2, sequence_first);
        if let Some((error, sentence)) = refusal.map(error_of) {
            put_varint(into, 3, error);
            put_bytes(into, 4, sentence);
            return;
        }
        put_message_id(into, 3, topic, entry);
        put_varint(into, 4, sequence_last);
    });
}

/// Appends ACK_RESPONSE of a consumer.
#[inline]
pub fn put_reply(into: &mut Vec<u8>, consumer: u64, reply: &Reply) {
    put_frame(into, kind::ACK_RESPONSE, no_tail, |into| {
        put_varint(into, 1, consumer);
        put_varint(into, 6, reply.request);
    });
}

/// Appends PONG.
#[inline]
pub fn put_pong(into: &mut Vec<u8>) {
    put_frame(into, kind::PONG, no_tail, |_| {});
}

/// What stands before an entry that a consumer is given.
#[derive(Clone, Copy, Debug)]
pub struct Heading {
    /// The consumer's number.
    pub consumer: u64,
    /// The number of the entry's topic.
    pub topic: TopicId,
    /// The entry's number.
    pub entry: u64,
    /// How often it has come back.
    pub redeliveries: u16,
}

/// Appends MESSAGE, whose entry `tail` appends.
#[inline]
pub fn put_entry(into: &mut Vec<u8>, heading: &Heading, tail: impl FnOnce(&mut Vec<u8>)) {
    put_frame(into, kind::MESSAGE, tail, |into| {
        put_varint(into, 1, heading.consumer);
        put_message_id(into, 2, heading.topic, heading.entry);
        if heading.redeliveries > 0 {
            put_varint(into, 3, u64::from(heading.redeliveries));
        }
    });
}

fn no_tail(_: &mut Vec<u8>) {}

/// A topic is a ledger, so that the numbers of its entries are dense in it.
#[inline]
fn put_message_id(into: &mut Vec<u8>, field: u32, topic: TopicId, entry: u64) {
    put_message(into, field, |into| {
        put_varint(into, 1, u64::from(topic.0));
        put_varint(into, 2, entry);
    });
}

/// Appends a frame with the command whose fields `fields` appends, and what `tail` appends behind it.
#[inline]
fn put_frame(into: &mut Vec<u8>, kind: u8, tail: impl FnOnce(&mut Vec<u8>), fields: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    // The sizes, which are known only behind what they count.
    into.extend_from_slice(&[0; HEADER_BYTES]);
    put_varint(into, 1, u64::from(kind));
    put_message(into, u32::from(kind), fields);
    let command = into.len() - start - HEADER_BYTES;
    tail(into);
    let total = into.len() - start - SIZE_BYTES;
    for (at, bytes) in [(start, total), (start + SIZE_BYTES, command)] {
        if let Some(size) = into.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<SIZE_BYTES>()) {
            *size = u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
        }
    }
}
