//! What the records of a log come to: topics, retained messages, delivery states, and which control record has the
//! newest value of each key. A checkpoint holds this and nothing else.
//!
//! Bounded by the number of topics, of durable parties and of live keys.

use super::dictionary::Dictionary;
use super::in_force::InForce;
use super::parties::{party_of, Parties};
use super::record::Record;
use super::retained::{Retained, RetainedMessages};
use crate::error::Result;
use crate::ids::{LogPosition, Party};

/// What is known without looking at records.
pub(super) struct Derived {
    pub(super) dictionary: Dictionary,
    pub(super) retained: RetainedMessages,
    pub(super) parties: Parties,
    pub(super) in_force: InForce,
}

impl Derived {
    /// Of a log without records.
    pub(super) fn new(seed: u64) -> Derived {
        Derived {
            dictionary: Dictionary::new(seed),
            retained: RetainedMessages::default(),
            parties: Parties::default(),
            in_force: InForce::default(),
        }
    }

    /// A message with the RETAIN flag was appended. It is durable at the first position, and the log is so up to the
    /// other.
    pub(super) fn take_retained(&mut self, record: &Record<'_>, durable: (LogPosition, LogPosition)) {
        if let Some(name) = self.dictionary.shared_name(record.topic) {
            self.retained.change_at(name, Retained::of(record), durable);
        }
    }

    /// Takes over a control record. In table 0 it is about a party: `has` says of whom a checkpoint holds what the
    /// record says already, and a value that is not a state is an error.
    pub(super) fn take_control(&mut self, record: &Record<'_>, has: impl Fn(Party) -> bool) -> Result<()> {
        let key = record.key.unwrap_or_default();
        match record.publisher.0 {
            0 => self.parties.apply(party_of(key)?, record.entry, record.payload, has),
            table => {
                self.in_force.apply(table, key, record.payload, record.entry);
                Ok(())
            }
        }
    }
}
