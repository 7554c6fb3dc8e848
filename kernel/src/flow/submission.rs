//! Messages that are handed in as values: they came on no connection, and take the way of all others.

use super::{Arrivals, Fate, Publish, Span};
use crate::error::{Error, Result};
use crate::ids::{Connection, KeySlot, LogPosition, Party};
use crate::limits::{REMAINING_LENGTH_MAXIMUM, SUBMISSIONS_MAXIMUM, TURN_BYTES_MAXIMUM};
use crate::topic;

/// A message that is handed in.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    /// Who publishes it.
    pub publisher: Party,
    /// The slot of its publisher.
    pub key_slot: KeySlot,
    /// 0, 1 or 2.
    pub qos: u8,
    /// It becomes the retained message of its topic.
    pub retain: bool,
    /// Its topic.
    pub topic: &'a [u8],
    /// What travels with it, as in [`Publish::properties`].
    pub properties: &'a [u8],
    /// What it says.
    pub payload: &'a [u8],
    /// After how many seconds it expires, if ever.
    pub expiry_interval_s: Option<u32>,
}

/// What has become of a message that was handed in, once the log has appended the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It goes to those who are there, and is not stored.
    Passed,
    /// It is durable once the log is durable up to here.
    Stored(LogPosition),
    /// The log had no room for it; nobody gets it.
    Refused,
}

impl Arrivals {
    /// Takes in a message that came on no connection: after decode, before route. An error where the turn takes no
    /// more ([`Error::Busy`]), or the message is none that can be published. No grant of a connection holds for it.
    pub fn put(&mut self, message: &Submission<'_>) -> Result<()> {
        if self.submissions >= SUBMISSIONS_MAXIMUM || self.bytes.len() >= TURN_BYTES_MAXIMUM {
            return Err(Error::Busy(format!("a turn takes {SUBMISSIONS_MAXIMUM} messages that are handed in")));
        }
        let bytes = [message.topic, message.properties, message.payload].iter().map(|part| part.len()).sum::<usize>();
        if message.qos > 2 || !topic::is_valid_name(message.topic) || bytes > REMAINING_LENGTH_MAXIMUM {
            return Err(Error::Invalid(format!("a message of {bytes} bytes that nobody may publish")));
        }
        let publish = Publish {
            connection: Connection::NONE,
            publisher: message.publisher,
            key_slot: message.key_slot,
            packet_identifier: 0,
            qos: message.qos,
            retain: message.retain,
            topic: self.hold(message.topic),
            properties: self.hold(message.properties),
            payload: self.hold(message.payload),
            expiry_interval_s: message.expiry_interval_s,
            fate: Fate::Accepted,
            row: None,
            entry: None,
            targets: None,
            stored: None,
        };
        self.publishes.push(publish);
        self.submissions = self.submissions.saturating_add(1);
        Ok(())
    }

    /// What has become of the messages that were put in this turn, in their order.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        let first = self.publishes.len().saturating_sub(self.submissions).saturating_sub(self.rows);
        let handed_in = self.publishes.iter().skip(first).take(self.submissions);
        handed_in.map(|publish| match (publish.fate, publish.stored) {
            (Fate::Accepted, Some(stored)) => Outcome::Stored(stored.durable_at),
            (Fate::Accepted, None) => Outcome::Passed,
            _ => Outcome::Refused,
        })
    }

    pub(crate) fn hold(&mut self, bytes: &[u8]) -> Span {
        self.bytes.extend_from_slice(bytes);
        Span::new(self.bytes.len() - bytes.len(), bytes.len())
    }
}
