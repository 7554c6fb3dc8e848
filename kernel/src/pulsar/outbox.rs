//! The encoder of the hot path, which writes into what waits for each connection's socket.
//!
//! Owns: who the receivers of each connection are, and which entries could not be sent. Never: decides who gets an
//! entry; that comes from delivery.
//!
//! Invariants:
//! 1. An entry leaves byte for byte as it came, copied once, whatever is in it.
//! 2. No frame is larger than its receiver takes.
//!
//! Flow: delivery -> outbox -> sockets. The last stage of a turn.

use super::encode::{put_entry, put_pong, put_receipt, put_reply, Heading};
use crate::entry::of_message;
use crate::error::Result;
use crate::flow::entry::{Body, Receipt};
use crate::flow::{Arrivals, Departure, Messages, NoticeKind, Outgoing, Sending};
use crate::ids::{Connection, Offset, Receiver};
use crate::wire::buffers::Buffers;
use std::collections::BTreeMap;
use std::mem;

/// Who produced what no Pulsar client did.
const PRODUCER_NAME: &[u8] = b"holdfast";

/// How one connection is written to.
#[derive(Debug)]
struct Writer {
    frame_bytes_maximum: usize,
    /// By what number each receiver knows itself.
    consumers: BTreeMap<Receiver, u64>,
}

/// What was sent and dropped since the start.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub entries_sent: u64,
    pub messages_sent: u64,
    pub receipts_sent: u64,
    pub refusals_sent: u64,
    pub replies_sent: u64,
    pub pings_answered: u64,
    pub bytes_encoded: u64,
    pub dropped_retention: u64,
    pub dropped_too_large: u64,
}

/// An entry that could not be sent: whose it was, its first offset, and why.
pub type Gone = (Receiver, Offset, NoticeKind);

/// The sending side of all connections.
#[derive(Debug, Default)]
pub struct Outboxes {
    outboxes: Buffers<Writer>,
    gone: Vec<Gone>,
    counters: Counters,
}

impl Outboxes {
    /// A connection may be sent to; it takes frames of this size.
    pub fn open(&mut self, connection: Connection, frame_bytes_maximum: usize) -> Result<()> {
        self.outboxes.open(connection, Writer { frame_bytes_maximum, consumers: BTreeMap::new() })
    }

    /// Forgets the connection and what waits for it.
    pub fn close(&mut self, connection: Connection) {
        self.outboxes.close(connection);
    }

    /// A receiver on an open connection is its consumer with this number.
    pub fn add_consumer(&mut self, connection: Connection, consumer: u64, receiver: Receiver) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.writer.consumers.insert(receiver, consumer);
        }
    }

    /// Nothing is sent to this receiver any more.
    pub fn remove_consumer(&mut self, connection: Connection, receiver: Receiver) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.writer.consumers.remove(&receiver);
        }
    }

    /// Appends encoded bytes; nothing happens if the connection is closed.
    pub fn write(&mut self, connection: Connection, bytes: &[u8]) {
        self.put(connection, |into| into.extend_from_slice(bytes));
    }

    /// While a connection is not writable its bytes stay here.
    pub fn set_writable(&mut self, connection: Connection, is_writable: bool) {
        self.outboxes.set_writable(connection, is_writable);
    }

    /// Bytes that wait for the connection's socket.
    pub fn waiting_bytes(&self, connection: Connection) -> usize {
        self.outboxes.get(connection).map_or(0, |outbox| outbox.bytes.len())
    }

    /// Answers those of this turn that ask whether anybody is there.
    pub fn pass_through(&mut self, arrivals: &Arrivals) {
        for connection in &arrivals.pings {
            self.counters.pings_answered += self.put(*connection, put_pong);
        }
    }

    /// Encodes all that leaves to connections that are open here, and forgets the rest.
    pub fn encode(&mut self, outgoing: &mut Outgoing, messages: &mut dyn Messages) -> Result<()> {
        for departure in outgoing.departures.drain(..) {
            match departure {
                Departure::Sending(sending) => self.deliver(&sending, messages)?,
                Departure::Receipt(receipt) => self.tell(&receipt),
                Departure::Reply(reply) => {
                    if let Some(consumer) = self.consumer(reply.connection, reply.receiver) {
                        self.counters.replies_sent +=
                            self.put(reply.connection, |into| put_reply(into, consumer, &reply));
                    }
                }
                Departure::Encoded(connection, bytes) => self.write(connection, &bytes),
                Departure::Acknowledgement(_) => {}
            }
        }
        Ok(())
    }

    /// Entries that were not sent since the last call: retention took them, or they are too large for their receiver.
    pub fn gone(&mut self) -> Vec<Gone> {
        mem::take(&mut self.gone)
    }

    /// True if there are such.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Hands all bytes of each writable connection to `send`, in one call.
    pub fn take(&mut self, send: impl FnMut(Connection, &[u8])) {
        self.outboxes.take(send);
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn tell(&mut self, receipt: &Receipt) {
        let told = self.put(receipt.connection, |into| put_receipt(into, receipt));
        let count = match receipt.refusal {
            None => &mut self.counters.receipts_sent,
            Some(_) => &mut self.counters.refusals_sent,
        };
        *count += told;
    }

    #[inline]
    fn deliver(&mut self, sending: &Sending, messages: &mut dyn Messages) -> Result<()> {
        let &Sending { connection, receiver, redeliveries, offset, location, .. } = sending;
        let Some(outbox) = self.outboxes.get_mut(connection) else { return Ok(()) };
        let Some(consumer) = outbox.writer.consumers.get(&receiver).copied() else { return Ok(()) };
        let Some(entry) = messages.entry(location, offset)? else {
            self.counters.dropped_retention += 1;
            self.gone.push((receiver, offset, NoticeKind::Retention));
            return Ok(());
        };
        let heading = Heading { consumer, topic: entry.topic, entry: entry.number, redeliveries };
        let into = &mut outbox.bytes;
        let start = into.len();
        put_entry(into, &heading, |into| match &entry.body {
            Body::AsSent(tail) => into.extend_from_slice(tail),
            Body::Message(message) => of_message(message, PRODUCER_NAME, entry.number, into),
        });
        let bytes = into.len() - start;
        if bytes > outbox.writer.frame_bytes_maximum {
            into.truncate(start);
            self.counters.dropped_too_large += 1;
            self.gone.push((receiver, offset, NoticeKind::TooLarge));
            return Ok(());
        }
        self.counters.entries_sent += 1;
        self.counters.messages_sent += u64::from(entry.count);
        self.counters.bytes_encoded += u64::try_from(bytes).unwrap_or_default();
        Ok(())
    }

    /// By what number a receiver knows itself.
    fn consumer(&self, connection: Connection, receiver: Receiver) -> Option<u64> {
        self.outboxes.get(connection)?.writer.consumers.get(&receiver).copied()
    }

    /// Lets `write` append to what waits for a connection; returns 1, or 0 if it is closed.
    #[inline]
    fn put(&mut self, connection: Connection, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let Some(outbox) = self.outboxes.get_mut(connection) else { return 0 };
        let before = outbox.bytes.len();
        write(&mut outbox.bytes);
        let count = outbox.bytes.len().saturating_sub(before);
        self.counters.bytes_encoded += u64::try_from(count).unwrap_or_default();
        1
    }
}
