//! What a Pulsar connection adds to the receiving side of every connection.
//!
//! Owns: what is told to it of producers and consumers while it is decoded.

use super::peer::{Consumer, Peer, Producer};
use crate::error::Result;
use crate::flow::{Arrivals, Fate, Publish, Refusal};
use crate::ids::Connection;
use crate::wire;

/// The receiving side of all Pulsar connections.
pub type Inbox = wire::inbox::Inbox<Peer>;

/// What decode tells the caller about a connection: a command, or that the peer broke the protocol.
pub type Event = wire::decoder::Event<Peer>;

impl Inbox {
    /// The connection was accepted: it may send frames of this size, and is silent if nothing comes for so long.
    pub fn accept(&mut self, connection: Connection, frame_bytes_maximum: usize, silence_us: u64) -> Result<()> {
        self.decoder(connection)?.accept(frame_bytes_maximum, silence_us);
        Ok(())
    }

    /// Entries of a producer of the connection with this number are taken from now on.
    pub fn add_producer(&mut self, connection: Connection, number: u64, producer: Producer) -> Result<()> {
        self.decoder(connection)?.add_producer(number, producer);
        Ok(())
    }

    /// They are passed over from now on; nothing happens if the connection is closed.
    pub fn remove_producer(&mut self, connection: Connection, number: u64) {
        self.decoder(connection).map(|peer| peer.remove_producer(number)).ok();
    }

    /// Called after append: where an entry found no room, those that its producer sent behind it are refused as well.
    /// In the same turn they have found none either: the disk is asked once in a second at most.
    pub fn refuse_behind(&mut self, arrivals: &Arrivals) {
        let no_room = |one: &&Publish| matches!(one.fate, Fate::Refused(Refusal::NoRoom | Refusal::TooManyTopics));
        for publish in arrivals.publishes.iter().filter(no_room) {
            if let (Some(entry), Ok(peer)) = (arrivals.entry_of(publish), self.decoder(publish.connection)) {
                peer.refuse_producer(entry.producer);
            }
        }
    }

    /// What a consumer of the connection with this number says counts from now on.
    pub fn add_consumer(&mut self, connection: Connection, number: u64, consumer: Consumer) -> Result<()> {
        self.decoder(connection)?.add_consumer(number, consumer);
        Ok(())
    }

    /// It is passed over from now on; nothing happens if the connection is closed.
    pub fn remove_consumer(&mut self, connection: Connection, number: u64) {
        self.decoder(connection).map(|peer| peer.remove_consumer(number)).ok();
    }
}
