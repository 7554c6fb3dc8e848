//! Commands that come once for each entry, read where they stand.
//!
//! Owns: which fields they must have. Never: knows the producers and consumers of a connection.

use super::fault::Fault;
use super::frame::Frame;
use super::kind;
use crate::flow::entry::Says;
use crate::protobuf::{low_half, Reader, Value};

/// What stands for -1 in a number of an entry.
const NO_ENTRY: u64 = u64::MAX;

/// A command, as far as says which one it is.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Its kind.
    pub kind: u8,
    /// Its fields.
    pub body: &'a [u8],
}

impl<'a> Command<'a> {
    /// Reads the kind of a command and finds its fields.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Command<'a>, Fault> {
        let (mut kind, mut last) = (None, (0, [].as_slice()));
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Varint(number)) => kind = Some(number),
                (field, Value::Bytes(fields)) => last = (field, fields),
                _ => {}
            }
        }
        let kind = kind::of_client(kind.ok_or(Fault::new("a command that does not say which"))?)?;
        let body = if last.0 == u32::from(kind) { last.1 } else { last_of(u32::from(kind), bytes)? };
        Ok(Command { kind, body })
    }
}

/// The last field with this number among others, which no client sends.
#[inline(never)]
fn last_of(number: u32, bytes: &[u8]) -> Result<&[u8], Fault> {
    let mut last = [].as_slice();
    let mut reader = Reader::new(bytes);
    while let Some((field, value)) = reader.next()? {
        if let (true, Value::Bytes(fields)) = (field == number, value) {
            last = fields;
        }
    }
    Ok(last)
}

/// A producer's entry, but for the entry.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Which producer.
    pub producer: u64,
    /// The number of the entry's first message.
    pub sequence_id: u64,
    /// The number of its last one, if that is said.
    pub highest_sequence_id: Option<u64>,
    /// How many messages it has, if that is said.
    pub messages: Option<u32>,
}

impl Sent {
    /// Reads the fields of SEND.
    #[inline]
    pub fn read(body: &[u8]) -> Result<Sent, Fault> {
        let (mut producer, mut sequence_id, mut highest_sequence_id, mut messages) = (None, None, None, None);
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Varint(id)) => producer = Some(id),
                (2, Value::Varint(id)) => sequence_id = Some(id),
                (3, Value::Varint(count)) => messages = Some(low_half(count)),
                (4 | 5, Value::Varint(_)) => return Err(TRANSACTION),
                (6, Value::Varint(id)) => highest_sequence_id = Some(id),
                _ => {}
            }
        }
        let (Some(producer), Some(sequence_id)) = (producer, sequence_id) else {
            return Err(Fault::new("an entry without its producer or its number"));
        };
        Ok(Sent { producer, sequence_id, highest_sequence_id, messages })
    }
}

/// More messages for a consumer: which one, and how many.
#[inline]
pub fn permits(body: &[u8]) -> Result<(u64, u32), Fault> {
    let (mut consumer, mut messages) = (None, None);
    let mut reader = Reader::new(body);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => consumer = Some(id),
            (2, Value::Varint(count)) => messages = Some(low_half(count)),
            _ => {}
        }
    }
    consumer.zip(messages).ok_or(Fault::new("permits without their consumer or their number"))
}

/// True if these are whole frames by which consumers take more messages, or are done with some and ask for no answer.
#[inline]
pub fn are_last_answers(mut bytes: &[u8]) -> bool {
    while let Ok(Some(frame)) = Frame::read(bytes) {
        let Some((_, rest)) = bytes.split_at_checked(frame.size_bytes) else { return false };
        let is_last = match Command::read(bytes.get(frame.command(0)).unwrap_or_default()) {
            Ok(Command { kind: kind::FLOW, .. }) => true,
            Ok(Command { kind: kind::ACK, body }) => Said::acknowledged(body).is_ok_and(|said| said.request.is_none()),
            _ => false,
        };
        if !is_last || rest.is_empty() {
            return is_last;
        }
        bytes = rest;
    }
    false
}

/// What a consumer says of entries, but for their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Which consumer.
    pub consumer: u64,
    /// What it says.
    pub says: Says,
    /// It is to be told, by this number of its own, when that is durable.
    pub request: Option<u64>,
    /// The field of the entries' numbers.
    pub field: u32,
}

impl Said {
    /// Reads the fields of ACK.
    #[inline]
    pub fn acknowledged(body: &[u8]) -> Result<Said, Fault> {
        let (mut consumer, mut says, mut request) = (None, None, None);
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Varint(id)) => consumer = Some(id),
                (2, Value::Varint(0)) => says = Some(Says::Done),
                (2, Value::Varint(1)) => says = Some(Says::DoneUpTo),
                (2, _) => says = None,
                (6 | 7, Value::Varint(_)) => return Err(TRANSACTION),
                (8, Value::Varint(id)) => request = Some(id),
                _ => {}
            }
        }
        let (Some(consumer), Some(says)) = (consumer, says) else {
            return Err(Fault::new("an acknowledgement without its consumer or its type"));
        };
        Ok(Said { consumer, says, request, field: 3 })
    }

    /// Reads the fields of REDELIVER_UNACKNOWLEDGED_MESSAGES.
    #[inline]
    pub fn wanted_again(body: &[u8]) -> Result<Said, Fault> {
        let (mut consumer, mut says) = (None, Says::AllAgain);
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Varint(id)) => consumer = Some(id),
                (2, Value::Bytes(_)) => says = Says::Again,
                _ => {}
            }
        }
        let consumer = consumer.ok_or(Fault::new("a negative acknowledgement without its consumer"))?;
        Ok(Said { consumer, says, request: None, field: 2 })
    }

    /// Appends the numbers of the entries of this ledger. An entry of which messages are left out is left out; so are
    /// those of other ledgers, and the one before the first.
    #[inline]
    pub fn put_numbers(&self, body: &[u8], ledger: u64, numbers: &mut Vec<u64>) -> Result<(), Fault> {
        let mut reader = Reader::new(body);
        while let Some((field, value)) = reader.next()? {
            if let (true, Value::Bytes(fields)) = (field == self.field, value) {
                let id = MessageId::read(fields)?;
                if id.ledger == ledger && id.entry != NO_ENTRY && !id.is_partial {
                    numbers.push(id.entry);
                }
            }
        }
        Ok(())
    }
}

/// Which entry.
struct MessageId {
    ledger: u64,
    entry: u64,
    /// Some of its messages are not meant.
    is_partial: bool,
}

impl MessageId {
    #[inline]
    fn read(bytes: &[u8]) -> Result<MessageId, Fault> {
        let (mut ledger, mut entry, mut is_partial) = (None, None, false);
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next()? {
            match field {
                (1, Value::Varint(id)) => ledger = Some(id),
                (2, Value::Varint(id)) => entry = Some(id),
                // A bit that is set stands for a message that is not acknowledged. Words may come one by one or packed.
                (5, Value::Varint(word)) => is_partial |= word != 0,
                (5, Value::Bytes(words)) => is_partial |= words.iter().any(|byte| byte & 0x7f != 0),
                _ => {}
            }
        }
        let (Some(ledger), Some(entry)) = (ledger, entry) else {
            return Err(Fault::new("a message id without its ledger or its entry"));
        };
        Ok(MessageId { ledger, entry, is_partial })
    }
}

/// None can have begun, so that this cannot be a part of one.
const TRANSACTION: Fault = Fault { reason: "a command of a transaction, of which there are none" };
