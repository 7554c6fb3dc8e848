//! What deliveries were at one moment, as rows: what is copied while everything goes on.
//!
//! Owns: the values. Never: decides which moment it is.

use super::state::{Flight, State};
use crate::ids::{Connection, Offset, Party, Timestamp};

/// One message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// To whom.
    pub party: Party,
    /// Where that is; `None` for a party at rest.
    pub connection: Option<Connection>,
    /// Its packet identifier.
    pub packet_identifier: u16,
    /// The message, and how far it is.
    pub flight: Flight,
    /// How often it was sent on this connection.
    pub attempts: u16,
    /// When it was sent last on this connection; 0 if it was not.
    pub since: Timestamp,
}

/// What delivery states on record came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Ranges of offsets that a party has acknowledged, first and end; the first of each is what lies below its mark.
    pub acknowledged: Vec<(Party, Offset, Offset)>,
    /// What was in flight to a party when it was last at rest, and at QoS 2 since then.
    pub in_flight: Vec<InFlight>,
}

impl States {
    /// Takes down the state of one party.
    pub fn take(&mut self, party: Party, state: &State) {
        self.acknowledged.push((party, Offset(0), state.mark));
        let ranges = state.acknowledged.iter();
        self.acknowledged.extend(ranges.map(|(first, end)| (party, Offset(first), Offset(end))));
        let row = |(packet_identifier, flight): (&u16, &Flight)| InFlight {
            party,
            connection: None,
            packet_identifier: *packet_identifier,
            flight: *flight,
            attempts: 0,
            since: Timestamp(0),
        };
        self.in_flight.extend(state.flights.iter().map(row));
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.acknowledged.len().saturating_add(self.in_flight.len())
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Retained messages: name, offset, and when it expires.
pub type RetainedRows = Vec<(std::sync::Arc<[u8]>, Offset, Option<Timestamp>)>;
