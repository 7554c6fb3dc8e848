//! The delivery state of every durable party, folded from the log as it is written and as it is recovered.
//!
//! Bounded by the number of durable parties: a few hundred bytes each, because a checkpoint must be able to write all
//! of them without reading the log again. They are kept in order, so that a walk in pieces finds its place again.

use super::record::Record;
use crate::error::{Error, Result};
use crate::flow::moment::States;
use crate::flow::state::{State, FULL, REMOVED};
use crate::ids::{Offset, Party};
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Bound;

/// A party's state, and where the log has it.
#[derive(Debug, Default)]
pub struct PartyState {
    /// What is known.
    pub state: State,
    /// The control number of the record that says all of it, 0 if there is none: older records may not be removed.
    pub full_number: u64,
    /// The number of the last moment for which it was copied, or that was before it came.
    pub copied_for: u32,
}

/// All states.
#[derive(Debug, Default)]
pub struct Parties {
    /// Apart from the tree, whose nodes are half empty.
    states: BTreeMap<u32, Box<PartyState>>,
    instant: Instant,
}

/// The moment that is copied: a state before it changes, or when the walk comes to it.
#[derive(Debug, Default)]
struct Instant {
    number: u32,
    copied: States,
}

impl Instant {
    fn before_change(&mut self, party: u32, known: &mut PartyState) {
        if known.copied_for != self.number {
            known.copied_for = self.number;
            self.copied.take(Party(party), &known.state);
        }
    }
}

impl Parties {
    /// Takes over a record of table 0. A value that is not a state is an error; what was known stays. Where it says
    /// that a group has handed a message over, the group has it no more: a crash may leave this record without the
    /// group's. `has` says of whom a checkpoint holds what the record says already.
    pub fn apply(&mut self, party: Party, number: u64, value: &[u8], has: impl Fn(Party) -> bool) -> Result<()> {
        let handed = if has(party) {
            State::default().apply(value)?
        } else if value.first() == Some(&REMOVED) {
            if let Some(mut known) = self.states.remove(&party.0) {
                self.instant.before_change(party.0, &mut known);
            }
            return Ok(());
        } else {
            let known = self.changing(party);
            let result = known.state.apply(value);
            if value.first() == Some(&FULL) && result.is_ok() {
                known.full_number = number;
            }
            result?
        };
        for (offset, group) in handed.into_iter().filter(|(_, group)| !has(*group)) {
            if let Some(known) = self.states.get_mut(&group.0) {
                self.instant.before_change(group.0, known);
                known.state.acknowledge(offset, Offset(offset.0.saturating_add(1)));
            }
        }
        Ok(())
    }

    /// Takes over a stored message: a durable publisher's packet identifier of QoS 2 has been received.
    pub fn note_message(&mut self, record: &Record<'_>) {
        if record.qos != 2 || !record.publisher.is_durable() {
            return;
        }
        if let Some(packet_identifier) = record.packet_identifier {
            self.changing(record.publisher).state.note_unreleased(packet_identifier);
        }
    }

    fn changing(&mut self, party: Party) -> &mut PartyState {
        let Parties { states, instant } = self;
        match states.entry(party.0) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                instant.before_change(party.0, known);
                known
            }
            Entry::Vacant(free) => {
                free.insert(Box::new(PartyState { copied_for: instant.number, ..PartyState::default() }))
            }
        }
    }

    /// What the states are at this moment is to be copied, while they change.
    pub fn begin_instant(&mut self) {
        self.instant.number = self.instant.number.wrapping_add(1);
        self.instant.copied = States::default();
    }

    /// What has been copied since the last call, with those behind `after` for about `effort`; up to which party they
    /// have been looked at, `None` if all have.
    pub fn instant_piece(&mut self, after: Option<Party>, effort: usize) -> (States, Option<Party>) {
        let Parties { states, instant } = self;
        let first = after.map_or(Bound::Unbounded, |party| Bound::Excluded(party.0));
        let (mut last, mut looked_at) = (after.unwrap_or(Party(0)), 0_usize);
        for (party, known) in states.range_mut((first, Bound::Unbounded)) {
            if looked_at.saturating_add(instant.copied.len()) >= effort {
                return (std::mem::take(&mut instant.copied), Some(last));
            }
            instant.before_change(*party, known);
            last = Party(*party);
            looked_at = looked_at.saturating_add(1);
        }
        (std::mem::take(&mut instant.copied), None)
    }

    /// Sets a state, as a checkpoint has it.
    pub fn insert(&mut self, party: Party, state: PartyState) {
        self.states.insert(party.0, Box::new(state));
    }

    /// The state of a party.
    pub fn get(&self, party: Party) -> Option<&PartyState> {
        self.states.get(&party.0).map(Box::as_ref)
    }

    /// The state of a party as bytes.
    pub fn encoded(&self, party: Party) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.get(party)?.state.encode(&mut bytes);
        Some(bytes)
    }

    /// Those behind a party, or all of them, in their order.
    pub fn after(&self, party: Option<Party>) -> impl Iterator<Item = (Party, &PartyState)> {
        let first = party.map_or(Bound::Unbounded, |party| Bound::Excluded(party.0));
        self.states.range((first, Bound::Unbounded)).map(|(party, state)| (Party(*party), state.as_ref()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }
}

/// The party that a key of table 0 stands for.
pub fn party_of(key: &[u8]) -> Result<Party> {
    let bytes: [u8; 4] = key.try_into().map_err(|_| Error::Invalid("a key of table 0 has four bytes".to_owned()))?;
    Ok(Party(u32::from_le_bytes(bytes)))
}
