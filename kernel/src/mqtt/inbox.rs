//! What an MQTT connection adds to the receiving side of every connection.
//!
//! Owns: what the exchanges of QoS 1 and 2 that a client began are told by the stages behind decode.

use super::peer::{Acceptance, Expectation, Peer};
use crate::error::Result;
use crate::flow::{Arrivals, Fate, Step};
use crate::ids::Connection;
use crate::wire;

/// The receiving side of all MQTT connections.
pub type Inbox = wire::inbox::Inbox<Peer>;

/// What decode tells the caller about a connection: a control packet, or that the peer broke the protocol.
pub type Event = wire::decoder::Event<Peer>;

impl Inbox {
    /// A server is at the other end of the connection, which has been sent CONNECT: CONNACK must come first.
    pub fn expect(&mut self, connection: Connection, expectation: Expectation) -> Result<()> {
        self.decoder(connection)?.expect(expectation);
        Ok(())
    }

    /// Messages of a server that were taken over.
    pub fn taken(&mut self, connection: Connection) -> Result<u64> {
        Ok(self.decoder(connection)?.taken())
    }

    /// Messages of a server that were not taken over.
    pub fn lost(&mut self, connection: Connection) -> Result<u64> {
        Ok(self.decoder(connection)?.lost())
    }

    /// The connection was accepted.
    pub fn accept(&mut self, connection: Connection, acceptance: Acceptance) -> Result<()> {
        self.decoder(connection)?.accept(acceptance);
        Ok(())
    }

    /// Packet identifiers of QoS 2 messages of this connection that are not released.
    pub fn unreleased(&mut self, connection: Connection) -> Result<Vec<u16>> {
        Ok(self.decoder(connection)?.publishing.unreleased().collect())
    }

    /// Forgets the packet identifiers of refused messages and of PUBRELs.
    pub fn forget(&mut self, arrivals: &Arrivals) {
        let refused = arrivals.publishes.iter().filter(|publish| publish.qos == 2 && is_refused(publish.fate));
        let released = arrivals.acknowledgements.iter().filter(|packet| packet.step == Step::Released);
        let refused = refused.map(|publish| (publish.connection, publish.packet_identifier));
        for (connection, packet_identifier) in
            refused.chain(released.map(|packet| (packet.connection, packet.packet_identifier)))
        {
            if let Ok(peer) = self.decoder(connection) {
                peer.publishing.forget(packet_identifier);
            }
        }
    }

    /// `count` QoS 1 or 2 messages of this connection have been answered.
    pub fn answered(&mut self, connection: Connection, count: u32) {
        if let Ok(peer) = self.decoder(connection) {
            peer.publishing.answered(count);
        }
    }
}

fn is_refused(fate: Fate) -> bool {
    matches!(fate, Fate::Refused(_) | Fate::Denied)
}
