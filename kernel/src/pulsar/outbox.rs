//! The encoder of the hot path, which writes into what waits for each connection's socket.
//!
//! Owns: which consumer of a connection each receiver is. Never: decides who gets an entry.
//!
//! Flow: delivery -> outbox -> sockets. The last stage of a turn.

use super::encode::{put_entry, put_pong, put_receipt, put_reply, MessageId};
use crate::entry::of_message;
use crate::error::Result;
use crate::flow::entry::Body;
use crate::flow::{Arrivals, Departure, Messages, NoticeKind, Outgoing, Sending};
use crate::ids::{Connection, Offset, Receiver};
use crate::wire::buffers::Buffers;
use std::collections::HashMap;

/// The name of the producer of messages that came by another protocol.
const PRODUCER_NAME: &[u8] = b"holdfast";

/// The consumers of one connection.
type Consumers = HashMap<Receiver, u64>;

/// What was sent since the start.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub entries_sent: u64,
    pub messages_sent: u64,
    pub receipts_sent: u64,
    pub pings_answered: u64,
    pub bytes_encoded: u64,
}

/// The sending side of all connections.
#[derive(Debug, Default)]
pub struct Outboxes {
    outboxes: Buffers<Consumers>,
    /// A message of another protocol, written as an entry.
    scratch: Vec<u8>,
    /// Entries that were to be sent and are gone.
    gone: Vec<(Receiver, Offset, NoticeKind)>,
    counters: Counters,
}

impl Outboxes {
    /// A connection may be sent to.
    pub fn open(&mut self, connection: Connection) -> Result<()> {
        self.outboxes.open(connection, Consumers::new())
    }

    /// Forgets the connection and what waits for it.
    pub fn close(&mut self, connection: Connection) {
        self.outboxes.close(connection);
    }

    /// One of its consumers is this receiver.
    pub fn add_consumer(&mut self, connection: Connection, consumer: u64, receiver: Receiver) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.writer.insert(receiver, consumer);
        }
    }

    /// The receiver is none of its consumers any more: what is on the way to it does not leave.
    pub fn remove_consumer(&mut self, connection: Connection, receiver: Receiver) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.writer.remove(&receiver);
        }
    }

    /// Appends encoded bytes; nothing happens if the connection is closed.
    pub fn write(&mut self, connection: Connection, bytes: &[u8]) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.bytes.extend_from_slice(bytes);
            self.counters.bytes_encoded += count(bytes.len());
        }
    }

    /// While a connection is not writable its bytes stay here.
    pub fn set_writable(&mut self, connection: Connection, writable: bool) {
        self.outboxes.set_writable(connection, writable);
    }

    /// Bytes that wait for the connection's socket.
    pub fn waiting_bytes(&self, connection: Connection) -> usize {
        self.outboxes.get(connection).map_or(0, |outbox| outbox.bytes.len())
    }

    /// Answers those that ask whether anybody is there.
    pub fn pass_through(&mut self, arrivals: &Arrivals) {
        for connection in &arrivals.pings {
            if let Some(outbox) = self.outboxes.get_mut(*connection) {
                put_pong(&mut outbox.bytes);
                self.counters.pings_answered += 1;
            }
        }
    }

    /// Encodes entries, receipts and replies; clears `outgoing`.
    pub fn encode(&mut self, outgoing: &mut Outgoing, messages: &mut dyn Messages) -> Result<()> {
        for departure in outgoing.departures.drain(..) {
            if let Departure::Sending(sending) = &departure {
                self.deliver(sending, messages)?;
                continue;
            }
            let Some(outbox) = self.outboxes.get_mut(departure.connection()) else { continue };
            let before = outbox.bytes.len();
            match departure {
                Departure::Receipt(receipt) => {
                    put_receipt(&mut outbox.bytes, &receipt);
                    self.counters.receipts_sent += 1;
                }
                Departure::Reply(reply) => {
                    if let Some(consumer) = outbox.writer.get(&reply.receiver) {
                        put_reply(&mut outbox.bytes, *consumer, &reply);
                    }
                }
                Departure::Encoded(_, bytes) => outbox.bytes.extend_from_slice(&bytes),
                Departure::Sending(_) | Departure::Acknowledgement(_) => {}
            }
            self.counters.bytes_encoded += count(outbox.bytes.len() - before);
        }
        Ok(())
    }

    fn deliver(&mut self, sending: &Sending, messages: &mut dyn Messages) -> Result<()> {
        let Outboxes { outboxes, scratch, gone, counters } = self;
        let Some(outbox) = outboxes.get_mut(sending.connection) else { return Ok(()) };
        let Some(consumer) = outbox.writer.get(&sending.receiver).copied() else { return Ok(()) };
        let Some(entry) = messages.entry(sending.location, sending.offset)? else {
            gone.push((sending.receiver, sending.offset, NoticeKind::Retention));
            return Ok(());
        };
        let tail = match &entry.body {
            Body::AsSent(tail) => tail,
            Body::Message(message) => {
                scratch.clear();
                of_message(message, PRODUCER_NAME, entry.offset.0, scratch);
                scratch.as_slice()
            }
        };
        let before = outbox.bytes.len();
        let id = MessageId { ledger: u64::from(entry.topic.0), entry: entry.number };
        put_entry(&mut outbox.bytes, consumer, id, sending.redeliveries, tail);
        outbox.end_message();
        counters.entries_sent += 1;
        counters.messages_sent += u64::from(entry.count);
        counters.bytes_encoded += count(outbox.bytes.len() - before);
        Ok(())
    }

    /// Entries that were to be sent since the last call and are gone: to whom, their first offset, and why.
    pub fn gone(&mut self) -> Vec<(Receiver, Offset, NoticeKind)> {
        std::mem::take(&mut self.gone)
    }

    /// Hands all bytes of each writable connection to `send`, in one call.
    pub fn take(&mut self, send: impl FnMut(Connection, &[u8])) {
        self.outboxes.take(send);
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

fn count(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
