//! What answers entries and what consumers say, as frames.

use super::frame::HEADER_BYTES;
use super::kind;
use crate::flow::entry::{Receipt, Reply};
use crate::flow::Refusal;
use crate::ids::TopicId;

/// Bytes of each of the two sizes of a frame.
const SIZE_BYTES: usize = HEADER_BYTES / 2;

/// The sizes and the command of any frame take less, and a message in a command fewer than 128.
const HEAD_BYTES: usize = 128;

/// Which error an entry is refused with (ServerError), and the sentence that goes with it.
fn error_of(refusal: Refusal) -> (u64, &'static [u8]) {
    match refusal {
        Refusal::NotAuthorized => (4, b"The user's rules do not allow to publish to this topic any more."),
        Refusal::Damaged => (9, b"The message does not have the checksum that it came with."),
        _ => (2, b"The log has no room for the message."),
    }
}

/// Appends SEND_RECEIPT, or SEND_ERROR for what was refused.
#[inline]
pub fn put_receipt(into: &mut Vec<u8>, receipt: &Receipt) {
    let Receipt { producer, sequence_first, sequence_last, topic, entry, refusal, .. } = *receipt;
    let kind = if refusal.is_some() { kind::SEND_ERROR } else { kind::SEND_RECEIPT };
    put_frame(into, kind, no_tail, |head| {
        head.number(1, producer);
        head.number(2, sequence_first);
        if let Some((error, sentence)) = refusal.map(error_of) {
            head.number(3, error);
            head.message(4, |head| sentence.iter().for_each(|byte| head.byte(*byte)));
            return;
        }
        head.message_id(3, topic, entry);
        head.number(4, sequence_last);
    });
}

/// Appends ACK_RESPONSE of a consumer.
pub fn put_reply(into: &mut Vec<u8>, consumer: u64, reply: &Reply) {
    put_frame(into, kind::ACK_RESPONSE, no_tail, |head| {
        head.number(1, consumer);
        head.number(6, reply.request);
    });
}

/// Appends PONG.
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
    put_frame(into, kind::MESSAGE, tail, |head| {
        head.number(1, heading.consumer);
        head.message_id(2, heading.topic, heading.entry);
        if heading.redeliveries > 0 {
            head.number(3, u64::from(heading.redeliveries));
        }
    });
}

/// What stands before an entry, put together where nothing has to grow: its sizes and its command.
struct Head {
    bytes: [u8; HEAD_BYTES],
    end: usize,
}

impl Head {
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.end) {
            (*place, self.end) = (byte, self.end + 1);
        }
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.byte(value.to_le_bytes()[0]);
    }

    /// A field that is a number.
    fn number(&mut self, field: u8, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// A field that is text, or a message.
    #[inline]
    fn message(&mut self, field: u8, write: impl FnOnce(&mut Head)) {
        self.varint(u64::from(field) << 3 | 2);
        let at = self.end;
        self.byte(0);
        write(self);
        let size = u8::try_from(self.end - at - 1).unwrap_or_default();
        self.bytes.get_mut(at).into_iter().for_each(|place| *place = size);
    }

    /// A topic is a ledger, so that the numbers of its entries are dense in it.
    fn message_id(&mut self, field: u8, topic: TopicId, entry: u64) {
        self.message(field, |head| {
            head.number(1, u64::from(topic.0));
            head.number(2, entry);
        });
    }
}

/// Appends a frame with the command whose fields `fields` puts, and what `tail` appends behind it.
#[inline]
fn put_frame(into: &mut Vec<u8>, kind: u8, tail: impl FnOnce(&mut Vec<u8>), fields: impl FnOnce(&mut Head)) {
    let mut head = Head { bytes: [0; HEAD_BYTES], end: HEADER_BYTES };
    head.number(1, u64::from(kind));
    head.message(kind, fields);
    let start = into.len();
    into.extend_from_slice(head.bytes.get(..head.end).unwrap_or_default());
    tail(into);
    // The sizes, which are known only behind what they count.
    let sizes = [into.len() - start - SIZE_BYTES, head.end - HEADER_BYTES];
    for (size, place) in sizes.into_iter().zip(into.get_mut(start..).unwrap_or_default().chunks_exact_mut(SIZE_BYTES)) {
        place.copy_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    }
}

fn no_tail(_: &mut Vec<u8>) {}
