//! Entries: several messages that a producer has put together, as they came; and what is said of them.
//!
//! An entry takes one number among the entries of its topic, and as many offsets as it has messages. Whoever wants
//! entries is given them as they came; to all others each of its messages is a message like any other.

use super::{Arrivals, Message, Publish, Refusal};
use crate::ids::{Connection, Offset, Party, Receiver, Timestamp, TopicId};
use std::ops::Range;

/// Where the bytes of an entry begin that its checksum is about: behind the two bytes that say that it has one, and the
/// checksum.
pub const CHECKED_FROM: usize = 6;

/// What an entry has besides what every message has. Its payload is all of it, from the two bytes that say that it has
/// a checksum on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryParts {
    /// Which of its connection's producers sent it.
    pub producer: u64,
    /// The number that its producer gave its first message.
    pub sequence_first: u64,
    /// The number that its producer gave its last message.
    pub sequence_last: u64,
    /// How many messages it has; at least 1.
    pub count: u32,
    /// MurmurHash3 (x86, 32 bit, seed 0) of its key; `None` without one.
    pub key_hash: Option<u32>,
    /// It may not be given to anybody before this time.
    pub not_before: Option<Timestamp>,
    /// What its payload takes once it is opened, as it says itself; 0 if it is not compressed.
    pub opened_bytes: u32,
    /// CRC-32C of its payload from [`CHECKED_FROM`] on, which was compared with what it is.
    pub checksum: u32,
}

impl Arrivals {
    /// What an entry has besides; `None` of a message.
    #[inline]
    pub fn entry_of(&self, publish: &Publish) -> Option<&EntryParts> {
        self.entries.get(usize::try_from(publish.entry?).unwrap_or(usize::MAX))
    }
}

/// A receiver takes so many messages more than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    /// Who.
    pub receiver: Receiver,
    /// How many.
    pub messages: u32,
}

/// What a receiver says of entries that were given to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// On which connection.
    pub connection: Connection,
    /// Who.
    pub receiver: Receiver,
    /// What.
    pub says: Says,
    /// About which: their numbers in [`Arrivals::numbers`].
    pub numbers: Range<usize>,
    /// It is to be told, by this number of its own, when that is durable.
    pub request: Option<u64>,
}

/// What is said of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// It is done with these.
    Done,
    /// It is done with these and all before them.
    DoneUpTo,
    /// It wants these again; counted as given out once more.
    Again,
    /// It wants all again that it has.
    AllAgain,
}

/// A producer is told what became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// On which connection.
    pub connection: Connection,
    /// Which of its producers.
    pub producer: u64,
    /// The number of the entry's first message.
    pub sequence_first: u64,
    /// The number of the entry's last message.
    pub sequence_last: u64,
    /// The number of its topic; 0 if it was refused.
    pub topic: TopicId,
    /// Its number in the topic.
    pub entry: u64,
    /// Why it was not taken, if it was not.
    pub refusal: Option<Refusal>,
}

/// A receiver is told that what it said is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// On which connection.
    pub connection: Connection,
    /// Who.
    pub receiver: Receiver,
    /// By which number of its own.
    pub request: u64,
}

/// A whole record, borrowed from the log's memory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The number of its topic.
    pub topic: TopicId,
    /// Its number among the entries of its topic.
    pub number: u64,
    /// Its first offset.
    pub offset: Offset,
    /// How many messages it has.
    pub count: u32,
    /// When it was stored.
    pub appended_at: Timestamp,
    /// Who published it.
    pub publisher: Party,
    /// What it says.
    pub body: Body<'a>,
}

/// What a record says.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// An entry, as its producer sent it.
    AsSent(&'a [u8]),
    /// A single message.
    Message(Message<'a>),
}
