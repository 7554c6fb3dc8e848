//! One type per identifier and quantity, so that a signature says what it takes.

use crate::error::{Error, Result};
use crate::limits::CONNECTIONS_MAXIMUM;

/// The position of a message in the order of its shard: dense, one per message, never reused
/// (docs/adr/0002-one-log.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// A byte position in everything ever appended; grows for ever, across segments. What waits for the disk waits
/// for one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

/// Microseconds since the epoch, in UTC. Always an argument: nothing in the kernel reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// A topic name's number in the log's dictionary; 0 is reserved for control records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

/// A party's number: whoever publishes, or owns a queue and what is in flight to it. Given by the caller; numbers
/// below [`Party::TRANSIENT`] are stable across restarts and have durable delivery state; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub u32);

impl Party {
    /// The first number of parties whose delivery state ends with their connection.
    pub const TRANSIENT: Party = Party(1 << 31);

    /// True if delivery state of this party survives restarts.
    pub fn is_durable(self) -> bool {
        self.0 != 0 && self < Party::TRANSIENT
    }
}

/// A network connection's small handle, given by the caller and reused after it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection(pub u32);

impl Connection {
    /// In place of a connection where a message came on none: it was handed in.
    pub const NONE: Connection = Connection(u32::MAX - 1);
    /// In place of a connection where a queue has several: it is a group's, and whoever sends chooses a member.
    pub const GROUP: Connection = Connection(u32::MAX);

    /// Refuses a handle that is too large for a table.
    pub fn check(self) -> Result<()> {
        match usize::try_from(self.0) {
            Ok(number) if number < CONNECTIONS_MAXIMUM => Ok(()),
            _ => Err(Error::Invalid(format!("connection {} is not below {CONNECTIONS_MAXIMUM}", self.0))),
        }
    }
}

/// A queue's small handle while it is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(pub u32);

/// The small handle of whoever takes from a queue, while it is attached. Its number says nothing about its
/// connection's: a connection may have several receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receiver(pub u32);

/// A small number that is given out densely and used again, so that what it stands for can lie in a table.
pub trait Handle: Copy {
    /// The handle with this number.
    fn new(number: u32) -> Self;

    /// Its number.
    fn number(self) -> u32;
}

macro_rules! handles {
    ($($name:ident)*) => { $(
        impl Handle for $name {
            #[inline]
            fn new(number: u32) -> $name {
                $name(number)
            }

            #[inline]
            fn number(self) -> u32 {
                self.0
            }
        }
    )* };
}

handles! { Connection Queue Receiver }

/// A slot of the 65 536 that keys hash to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySlot(pub u16);

/// Where a stored record's bytes are: a segment and a byte position in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The segment's number (carry segments included), dense and never reused.
    pub segment: u32,
    /// The byte at which the record starts.
    pub position: u32,
}
