//! The delivery state of every durable party, folded from the log as it is written and as it is recovered.
//!
//! Bounded by the number of durable parties: a few hundred bytes each, because a checkpoint must be able to write all
//! of them without reading the log again.

use super::record::Record;
use crate::error::Result;
use crate::flow::state::{Phase, Source, State, FULL, REMOVED};
use crate::ids::{Offset, Party};
use ahash::RandomState;
use std::collections::HashMap;

/// A party's state, and where the log has it.
#[derive(Debug, Default)]
pub struct PartyState {
    /// What is known.
    pub state: State,
    /// The control number of the record that says all of it, 0 if there is none: older records may not be removed.
    pub full_number: u64,
}

/// All states.
#[derive(Debug)]
pub struct Parties {
    states: HashMap<u32, PartyState, RandomState>,
}

impl Parties {
    /// No party has a state.
    pub fn new(seed: u64) -> Parties {
        Parties { states: HashMap::with_hasher(RandomState::with_seeds(seed, 31, 32, 33)) }
    }

    /// Takes over a record of table 0. A value that is not a state is an error; what was known stays.
    pub fn apply(&mut self, party: Party, number: u64, value: &[u8]) -> Result<()> {
        match value.first() {
            Some(&FULL) => {
                let state = State::decode(value)?;
                self.states.insert(party.0, PartyState { state, full_number: number });
            }
            Some(&REMOVED) => {
                self.states.remove(&party.0);
            }
            _ => {
                let mut state = self.states.remove(&party.0).unwrap_or_default();
                let result = state.state.apply(value);
                self.states.insert(party.0, state);
                result?;
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
            self.states.entry(record.publisher.0).or_default().state.note_received(packet_identifier);
        }
    }

    /// A group's message that was handed to a member is the member's alone. The two records that say so were written
    /// together, the member's first; a crash may have left that one only.
    pub fn reconcile(&mut self) {
        for (offset, party) in self.handed_over() {
            if let Some(group) = self.states.get_mut(&party.0) {
                group.state.acknowledge(offset, Offset(offset.0.saturating_add(1)));
            }
        }
    }

    /// The messages that groups have handed to members and that have to be there until these have them.
    pub fn handed_over(&self) -> Vec<(Offset, Party)> {
        let flights = self.states.values().flat_map(|known| known.state.flights.values());
        let open = flights.filter(|flight| flight.phase == Phase::Published);
        open.filter_map(|flight| match flight.source {
            Source::Group(party) => Some((flight.offset, party)),
            _ => None,
        })
        .collect()
    }

    /// Sets a state, as a checkpoint has it.
    pub fn insert(&mut self, party: Party, state: PartyState) {
        self.states.insert(party.0, state);
    }

    /// The state of a party as bytes.
    pub fn encoded(&self, party: Party) -> Option<Vec<u8>> {
        let found = self.states.get(&party.0)?;
        let mut bytes = Vec::new();
        found.state.encode(&mut bytes);
        Some(bytes)
    }

    /// All of them, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Party, &PartyState)> {
        self.states.iter().map(|(party, state)| (Party(*party), state))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Parties whose state the log would not have any more without the control records below `number`.
    pub fn resting_on(&self, number: u64) -> Vec<Party> {
        let mut parties: Vec<Party> =
            self.iter().filter(|(_, state)| state.full_number < number).map(|(party, _)| party).collect();
        parties.sort_unstable();
        parties
    }
}
