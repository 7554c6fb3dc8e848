//! The commands that come once for each entry, read where they stand.
//!
//! Owns: the field numbers of these commands. Never: keeps anything.

use crate::flow::entry::Says;
use crate::protobuf::{Malformed, Reader, Value};

/// Numbers of commands.
pub mod kind {
    /// The first one on a connection.
    pub const CONNECT: u64 = 2;
    /// An entry.
    pub const SEND: u64 = 6;
    /// What becomes of it.
    pub const SEND_RECEIPT: u64 = 7;
    /// The same, where it was not taken.
    pub const SEND_ERROR: u64 = 8;
    /// An entry for a consumer.
    pub const MESSAGE: u64 = 9;
    /// A consumer is done with entries.
    pub const ACK: u64 = 10;
    /// It takes more.
    pub const FLOW: u64 = 11;
    /// Is anybody there?
    pub const PING: u64 = 18;
    /// Yes.
    pub const PONG: u64 = 19;
    /// A consumer wants entries again.
    pub const REDELIVER: u64 = 20;
    /// What it is done with is durable.
    pub const ACK_RESPONSE: u64 = 38;
    /// The last one there is.
    pub const LAST: u64 = 68;
}

/// A command, as far as decode needs it.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// An entry follows.
    Send(Send),
    /// A consumer is done with entries.
    Ack(Ack),
    /// A consumer takes more messages.
    Flow {
        /// Which consumer.
        consumer: u64,
        /// How many.
        messages: u32,
    },
    /// A consumer wants entries again.
    Redeliver {
        /// Which consumer.
        consumer: u64,
        /// Ledger and entry of each; none: all that it has.
        ids: Vec<(u64, u64)>,
    },
    /// Is anybody there?
    Ping,
    /// Yes.
    Pong,
    /// One that the caller decides on, by its number.
    Other(u8),
}

/// The fields of SEND.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// Which of the connection's producers.
    pub producer: u64,
    /// The number of the entry's first message.
    pub sequence_first: u64,
    /// The number of its last message, where that is said.
    pub sequence_last: Option<u64>,
    /// How many messages it has, where that is said.
    pub messages: Option<u64>,
}

/// The fields of ACK.
#[derive(Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which consumer.
    pub consumer: u64,
    /// With these, or with all up to them.
    pub says: Says,
    /// Ledger and entry of each.
    pub ids: Vec<(u64, u64)>,
    /// It wants an answer under this number.
    pub request: Option<u64>,
}

/// Reads a command. Bytes that are none are refused, and so is one without a field that it has to have.
pub fn read(bytes: &[u8]) -> Result<Command, Malformed> {
    let (mut number, mut fields) = (None, None);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(value)) => number = Some(value),
            (of, Value::Bytes(bytes)) => fields = Some((of, bytes)),
            _ => {}
        }
    }
    let number = number.ok_or(Malformed)?;
    // The fields of a command stand under its own number.
    let own = fields.filter(|(of, _)| u64::from(*of) == number).map(|(_, bytes)| bytes);
    match number {
        kind::SEND => send(own.ok_or(Malformed)?).map(Command::Send),
        kind::ACK => ack(own.ok_or(Malformed)?).map(Command::Ack),
        kind::FLOW => flow(own.ok_or(Malformed)?),
        kind::REDELIVER => redeliver(own.ok_or(Malformed)?),
        kind::PING => Ok(Command::Ping),
        kind::PONG => Ok(Command::Pong),
        kind::CONNECT..=kind::LAST => u8::try_from(number).map(Command::Other).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

fn send(bytes: &[u8]) -> Result<Send, Malformed> {
    let (mut producer, mut first, mut send) = (None, None, Send::default());
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => producer = Some(id),
            (2, Value::Varint(id)) => first = Some(id),
            (3, Value::Varint(count)) => send.messages = Some(count),
            (6, Value::Varint(id)) => send.sequence_last = Some(id),
            _ => {}
        }
    }
    (send.producer, send.sequence_first) = (producer.ok_or(Malformed)?, first.ok_or(Malformed)?);
    Ok(send)
}

fn ack(bytes: &[u8]) -> Result<Ack, Malformed> {
    let (mut consumer, mut kind, mut ids, mut request) = (None, None, Vec::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => consumer = Some(id),
            (2, Value::Varint(number)) => kind = Some(number),
            (3, Value::Bytes(id)) => ids.extend(message_id(id)?),
            (8, Value::Varint(id)) => request = Some(id),
            _ => {}
        }
    }
    let says = match kind.ok_or(Malformed)? {
        0 => Says::Done,
        1 => Says::DoneUpTo,
        _ => return Err(Malformed),
    };
    Ok(Ack { consumer: consumer.ok_or(Malformed)?, says, ids, request })
}

fn flow(bytes: &[u8]) -> Result<Command, Malformed> {
    let (mut consumer, mut messages) = (None, None);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => consumer = Some(id),
            (2, Value::Varint(count)) => messages = Some(u32::try_from(count).map_err(|_| Malformed)?),
            _ => {}
        }
    }
    Ok(Command::Flow { consumer: consumer.ok_or(Malformed)?, messages: messages.ok_or(Malformed)? })
}

fn redeliver(bytes: &[u8]) -> Result<Command, Malformed> {
    let (mut consumer, mut ids) = (None, Vec::new());
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => consumer = Some(id),
            (2, Value::Bytes(id)) => ids.extend(message_id(id)?),
            _ => {}
        }
    }
    Ok(Command::Redeliver { consumer: consumer.ok_or(Malformed)?, ids })
}

/// Ledger and entry. Where some messages of the entry are left out of it, it stands for none: which of a batch are
/// acknowledged is not told one by one here.
fn message_id(bytes: &[u8]) -> Result<Option<(u64, u64)>, Malformed> {
    let (mut ledger, mut entry, mut is_whole) = (None, None, true);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, Value::Varint(id)) => ledger = Some(id),
            (2, Value::Varint(id)) => entry = Some(id),
            (5, Value::Varint(word)) => is_whole &= word == 0,
            // The same written as one field.
            (5, Value::Bytes(words)) => is_whole &= words.iter().all(|byte| byte & 0x7f == 0),
            _ => {}
        }
    }
    let id = (ledger.ok_or(Malformed)?, entry.ok_or(Malformed)?);
    Ok(is_whole.then_some(id))
}
