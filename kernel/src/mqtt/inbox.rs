//! What has arrived on all connections, decoded once a turn into one batch.
//!
//! Owns: the receiving side of every connection, and the arena that sockets' bytes are copied into once.
//! Never: decides on a control packet; its connection is held until the caller has.
//!
//! Invariants:
//! 1. Packets of one connection are decoded in order, and none while it is held.
//! 2. A connection leaves at most its Maximum Packet Size and
//!    [`crate::limits::TURN_CONNECTION_BYTES_MAXIMUM`] undecoded.
//!
//! Flow: sockets -> inbox -> route. The first stage of a turn.

use super::reception::{Acceptance, Event, Reception};
use crate::error::{Error, Result};
use crate::flow::{Arrivals, Fate, Step};
use crate::ids::{Connection, Timestamp};
use crate::limits::TURN_BYTES_MAXIMUM;
use crate::slots::Slots;
use crate::wire::rate::{Allowance, Rate};
use std::mem;

/// Bytes of one connection in the arena of the next turn.
#[derive(Debug)]
struct Piece {
    connection: Connection,
    start: usize,
    end: usize,
}

/// The receiving side of all connections.
#[derive(Debug, Default)]
pub struct Inbox {
    receptions: Slots<Connection, Box<Reception>>,
    /// What came since the last decode; becomes the arena of [`Arrivals`].
    incoming: Vec<u8>,
    pieces: Vec<Piece>,
    /// Connections whose backlog the next decode looks at.
    queue: Vec<Connection>,
    /// How fast all connections together are read.
    rate: Option<Rate>,
    /// Nothing is left of that: what waits in `queue` waits for the time.
    throttled: bool,
}

impl Inbox {
    /// A new connection: CONNECT must come first.
    pub fn open(&mut self, connection: Connection) -> Result<()> {
        connection.check()?;
        self.close(connection);
        self.receptions.put(connection, Box::new(Reception::new(connection)));
        Ok(())
    }

    /// CONNECT was accepted.
    pub fn accept(&mut self, connection: Connection, acceptance: Acceptance) -> Result<()> {
        self.reception(connection)?.accept(acceptance);
        Ok(())
    }

    /// Forgets the connection and what waits of it.
    pub fn close(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.take(connection) else { return };
        if reception.fed_bytes > 0 {
            self.pieces.retain(|piece| piece.connection != connection);
        }
        if reception.queued {
            self.queue.retain(|queued| *queued != connection);
        }
    }

    /// Takes `bytes`; returns how many bytes wait undecoded on this connection.
    pub fn feed(&mut self, connection: Connection, bytes: &[u8], now: Timestamp) -> Result<usize> {
        self.feed_with(connection, bytes.len(), now, |target| target.extend_from_slice(bytes))
    }

    /// The same, for bytes that only the caller can read: `fill` appends exactly `count` bytes.
    pub fn feed_with(
        &mut self,
        connection: Connection,
        count: usize,
        now: Timestamp,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize> {
        let full = self.incoming.len().saturating_add(count) > TURN_BYTES_MAXIMUM;
        if full {
            self.defer(connection);
        }
        let reception = self.receptions.get_mut(connection).ok_or_else(|| unknown(connection))?;
        let breach = reception.heard(count, now).err();
        if reception.is_ended() || count == 0 {
            return Ok(reception.waiting_bytes());
        }
        if let Some(breach) = breach {
            reception.end(breach);
            enqueue(&mut self.queue, reception, connection);
        } else if reception.held || reception.queued {
            fill(reception.backlog());
        } else if full {
            fill(reception.backlog());
            enqueue(&mut self.queue, reception, connection);
        } else {
            let start = self.incoming.len();
            fill(&mut self.incoming);
            let end = self.incoming.len();
            reception.fed_bytes += end - start;
            match self.pieces.last_mut() {
                Some(last) if last.connection == connection && last.end == start => last.end = end,
                _ => self.pieces.push(Piece { connection, start, end }),
            }
        }
        Ok(reception.waiting_bytes())
    }

    /// Decodes what has come into `arrivals`; returns control packets and faults, whose connections are held.
    pub fn decode(&mut self, arrivals: &mut Arrivals, now: Timestamp) -> Vec<(Connection, Event)> {
        arrivals.clear();
        if let Some(rate) = &mut self.rate {
            rate.advance(now);
        }
        mem::swap(&mut arrivals.bytes, &mut self.incoming);
        let mut events = Vec::new();
        let mut pieces = mem::take(&mut self.pieces);
        let mut queue = mem::take(&mut self.queue);
        // Before the pieces: what is queued then is the next turn's. Who was served goes to the back, so that the limit
        // of all is shared by turns.
        let mut served = Vec::new();
        for connection in queue.drain(..) {
            let took = self.within_limits(connection, arrivals, |reception, allowance, arrivals| {
                reception.decode_backlog(allowance, arrivals, &mut events);
            });
            match took {
                Some((taken, true)) if taken > 0 => served.push(connection),
                Some((_, true)) => self.queue.push(connection),
                _ => {}
            }
        }
        self.queue.append(&mut served);
        for piece in pieces.drain(..) {
            let mut was_queued = false;
            let took = self.within_limits(piece.connection, arrivals, |reception, allowance, arrivals| {
                was_queued = reception.queued;
                reception.decode_piece(piece.start..piece.end, allowance, arrivals, &mut events);
            });
            if took.is_some_and(|(_, queued)| queued) && !was_queued {
                self.queue.push(piece.connection);
            }
        }
        self.pieces = pieces;
        self.throttled = self.rate.as_ref().is_some_and(Rate::is_spent);
        events
    }

    /// Lets a connection decode as much as the limit of all allows; returns the bytes that it took, and whether it is
    /// queued for more. `None` if it is closed.
    fn within_limits(
        &mut self,
        connection: Connection,
        arrivals: &mut Arrivals,
        decode: impl FnOnce(&mut Reception, Allowance, &mut Arrivals),
    ) -> Option<(usize, bool)> {
        let reception = self.receptions.get_mut(connection)?;
        let mut rate = self.rate.as_mut();
        let publishes = arrivals.publishes.len();
        let allowance = rate.as_ref().map_or(Allowance::WHOLE_TURN, |rate| rate.allowance(publishes));
        let waiting = reception.waiting_bytes();
        decode(reception, allowance, arrivals);
        let taken = waiting.saturating_sub(reception.waiting_bytes());
        if let Some(rate) = &mut rate {
            rate.take(arrivals.publishes.len() - publishes, taken);
        }
        Some((taken, reception.queued))
    }

    /// How fast one connection may send from now on; sending faster is a fault.
    pub fn limit(&mut self, connection: Connection, rate: Option<Rate>) -> Result<()> {
        self.reception(connection)?.rate = rate.map(Box::new);
        Ok(())
    }

    /// How fast all connections together are read from now on; what comes faster waits.
    pub fn limit_all(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        self.throttled = false;
    }

    /// From `from` to `to` nothing of this connection could be read or decoded, which was our doing: it may send what
    /// it could have sent.
    pub fn unread(&mut self, connection: Connection, from: Timestamp, to: Timestamp) {
        let Some(reception) = self.receptions.get_mut(connection) else { return };
        if let Some(rate) = &mut reception.rate {
            rate.advance(from);
            rate.advance_unread(to);
        }
    }

    /// When a decode has something to do although nothing more comes, if waiting for the limit of all is what keeps it.
    pub fn next_at(&self) -> Option<Timestamp> {
        let rate = self.rate.as_ref().filter(|_| self.throttled && !self.queue.is_empty());
        rate.map(Rate::next_at)
    }

    /// What was held is decoded by the next [`Inbox::decode`].
    pub fn release(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.get_mut(connection) else { return };
        reception.held = reception.is_ended();
        if !reception.held && reception.waiting_bytes() > 0 {
            enqueue(&mut self.queue, reception, connection);
        }
    }

    /// Packet identifiers of QoS 2 messages of this connection that are not released.
    pub fn received(&mut self, connection: Connection) -> Result<Vec<u16>> {
        Ok(self.reception(connection)?.publishing.received().collect())
    }

    /// True if bytes wait on a connection that is not held, and need not wait for the limit of all.
    pub fn ready(&self) -> bool {
        !self.pieces.is_empty() || !self.queue.is_empty() && !self.throttled
    }

    /// Forgets the packet identifiers of refused messages and of PUBRELs.
    pub fn forget(&mut self, arrivals: &Arrivals) {
        let refused = arrivals.publishes.iter().filter(|publish| publish.qos == 2 && is_refused(publish.fate));
        let released = arrivals.acknowledgements.iter().filter(|packet| packet.step == Step::Released);
        let refused = refused.map(|publish| (publish.connection, publish.packet_identifier));
        for (connection, packet_identifier) in
            refused.chain(released.map(|packet| (packet.connection, packet.packet_identifier)))
        {
            if let Ok(reception) = self.reception(connection) {
                reception.publishing.forget(packet_identifier);
            }
        }
    }

    /// Connections from which nothing came for one and a half times their Keep Alive [MQTT-3.1.2-22].
    pub fn silent(&self, now: Timestamp) -> Vec<Connection> {
        let silent = self.receptions.iter().filter(|(_, reception)| reception.is_silent(now));
        silent.map(|(connection, _)| connection).collect()
    }

    /// `count` QoS 1 or 2 messages of this connection have been answered.
    pub fn answered(&mut self, connection: Connection, count: u32) {
        if let Ok(reception) = self.reception(connection) {
            reception.publishing.answered(count);
        }
    }

    fn reception(&mut self, connection: Connection) -> Result<&mut Reception> {
        let reception = self.receptions.get_mut(connection).map(AsMut::as_mut);
        reception.ok_or_else(|| unknown(connection))
    }

    /// The turn is full: moves what this connection has in it to its backlog, so that order is kept.
    fn defer(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.get_mut(connection) else { return };
        if reception.fed_bytes == 0 {
            return;
        }
        for piece in self.pieces.iter().filter(|piece| piece.connection == connection) {
            let bytes = self.incoming.get(piece.start..piece.end).unwrap_or_default();
            reception.backlog().extend_from_slice(bytes);
        }
        reception.fed_bytes = 0;
        self.pieces.retain(|piece| piece.connection != connection);
        enqueue(&mut self.queue, reception, connection);
    }
}

fn is_refused(fate: Fate) -> bool {
    matches!(fate, Fate::Refused(_) | Fate::Denied)
}

fn enqueue(queue: &mut Vec<Connection>, reception: &mut Reception, connection: Connection) {
    if !reception.queued {
        reception.queued = true;
        queue.push(connection);
    }
}

fn unknown(connection: Connection) -> Error {
    Error::Invalid(format!("connection {} is not open", connection.0))
}
