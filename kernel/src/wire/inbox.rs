//! What has arrived on all connections that speak one protocol, decoded once a turn into one batch.
//!
//! Owns: the receiving side of every connection, who is held, and how fast all together are read.
//! Never: decides on what its protocol's decoder hands out; that connection is held until the caller has.
//!
//! Invariants:
//! 1. Frames of one connection are decoded in order, and none while it is held.
//! 2. A connection leaves at most its largest frame and [`crate::limits::TURN_CONNECTION_BYTES_MAXIMUM`] undecoded.
//!
//! Flow: sockets -> inbox -> route. The first stage of a turn.

use super::arena::Arena;
use super::budget::Budget;
use super::decoder::{Decoder, Event};
use super::rate::{Allowance, Rate};
use super::reception::Reception;
use crate::error::{Error, Result};
use crate::flow::Arrivals;
use crate::ids::{Connection, Timestamp};
use crate::slots::Slots;
use std::mem;

/// The receiving side of all connections of one protocol.
#[derive(Debug)]
pub struct Inbox<D> {
    receptions: Slots<Connection, Box<Reception<D>>>,
    /// What came since the last decode; becomes the arena of [`Arrivals`].
    arena: Arena,
    /// Connections whose backlog the next decode looks at.
    queue: Vec<Connection>,
    /// How fast all connections together are read, those of other inboxes too; where nothing is left, what waits in
    /// `queue` waits for the time.
    budget: Budget,
}

impl<D> Default for Inbox<D> {
    fn default() -> Inbox<D> {
        let (receptions, arena) = (Slots::default(), Arena::default());
        Inbox { receptions, arena, queue: Vec::new(), budget: Budget::default() }
    }
}

impl<D: Decoder> Inbox<D> {
    /// An inbox whose connections are read within the limit of all that the other one has.
    pub fn beside<Other>(other: &Inbox<Other>) -> Inbox<D> {
        Inbox { budget: other.budget.beside(), ..Inbox::default() }
    }

    /// A new connection, of which nothing is known.
    pub fn open(&mut self, connection: Connection) -> Result<()> {
        connection.check()?;
        self.close(connection);
        self.receptions.put(connection, Box::new(Reception::new(connection)));
        Ok(())
    }

    /// What the protocol knows of a connection, to be told more.
    pub fn decoder(&mut self, connection: Connection) -> Result<&mut D> {
        Ok(&mut self.reception(connection)?.decoder)
    }

    /// Forgets the connection and what waits of it.
    pub fn close(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.take(connection) else { return };
        if reception.fed_bytes > 0 {
            self.arena.forget(connection);
        }
        if reception.is_queued {
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
        let has_room = self.arena.has_room(count);
        if !has_room {
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
        } else if reception.is_held || reception.is_queued {
            fill(reception.backlog());
        } else if has_room {
            reception.fed_bytes += self.arena.put(connection, fill);
        } else {
            fill(reception.backlog());
            enqueue(&mut self.queue, reception, connection);
        }
        Ok(reception.waiting_bytes())
    }

    /// How many bytes are still to come of the first frame that waits, after `bytes` were fed; 0 if it is whole, or if
    /// nobody can tell.
    #[inline]
    pub fn lacks(&mut self, connection: Connection, bytes: &[u8]) -> usize {
        self.receptions.get_mut(connection).map_or(0, |reception| reception.lacks(bytes))
    }

    /// Decodes what has come into `arrivals`; returns what is to be decided on and faults, whose connections are held.
    pub fn decode(&mut self, arrivals: &mut Arrivals, now: Timestamp) -> Vec<(Connection, Event<D>)> {
        arrivals.clear();
        self.decode_more(arrivals, now)
    }

    /// The same, behind what another inbox has decoded in this turn: of what came, what the turn has no room for waits,
    /// and all of it where the limit of all is another inbox's to take from.
    pub fn decode_more(&mut self, arrivals: &mut Arrivals, now: Timestamp) -> Vec<(Connection, Event<D>)> {
        let Some(mut rate) = self.budget.begin(now) else { return Vec::new() };
        let mut has_taken = false;
        let mut events = Vec::new();
        let (pieces, left) = self.arena.hand_over(&mut arrivals.bytes);
        let mut queue = mem::take(&mut self.queue);
        // Before the pieces: what is queued then is the next turn's. Who was served goes to the back, so that the limit
        // of all is shared by turns.
        let mut served = Vec::new();
        for connection in queue.drain(..) {
            let took = self.within_limits(connection, &mut rate, arrivals, |reception, allowance, arrivals| {
                reception.decode_backlog(allowance, arrivals, &mut events);
            });
            has_taken |= took.is_some_and(|(taken, _)| taken > 0);
            match took {
                Some((taken, true)) if taken > 0 => served.push(connection),
                Some((_, true)) => self.queue.push(connection),
                _ => {}
            }
        }
        self.queue.append(&mut served);
        for piece in &pieces {
            let mut was_queued = false;
            let took = self.within_limits(piece.connection, &mut rate, arrivals, |reception, allowance, arrivals| {
                was_queued = reception.is_queued;
                reception.decode_piece(piece.range.clone(), allowance, arrivals, &mut events);
            });
            has_taken |= took.is_some_and(|(taken, _)| taken > 0);
            if took.is_some_and(|(_, queued)| queued) && !was_queued {
                self.queue.push(piece.connection);
            }
        }
        for piece in &left {
            if let Some(reception) = self.receptions.get_mut(piece.connection) {
                reception.put_back(self.arena.left(piece));
                if !reception.is_held {
                    enqueue(&mut self.queue, reception, piece.connection);
                }
            }
        }
        self.arena.reuse(pieces);
        self.budget.end(rate, has_taken, !self.queue.is_empty());
        events
    }

    /// Lets a connection decode as much as the limit of all allows; returns the bytes that it took, and whether it is
    /// queued for more. `None` if it is closed.
    fn within_limits(
        &mut self,
        connection: Connection,
        rate: &mut Option<Rate>,
        arrivals: &mut Arrivals,
        decode: impl FnOnce(&mut Reception<D>, Allowance, &mut Arrivals),
    ) -> Option<(usize, bool)> {
        let reception = self.receptions.get_mut(connection)?;
        let messages = arrivals.totals.messages();
        let allowance = rate.as_ref().map_or(Allowance::WHOLE_TURN, |rate| rate.allowance(messages));
        let waiting = reception.waiting_bytes();
        decode(reception, allowance, arrivals);
        let taken = waiting.saturating_sub(reception.waiting_bytes());
        if let Some(rate) = rate {
            let messages = arrivals.totals.messages().wrapping_sub(messages);
            rate.take(usize::try_from(messages).unwrap_or(usize::MAX), taken);
        }
        Some((taken, reception.is_queued))
    }

    /// How fast one connection may send from now on; sending faster is a fault.
    pub fn limit(&mut self, connection: Connection, rate: Option<Rate>) -> Result<()> {
        self.reception(connection)?.rate = rate.map(Box::new);
        Ok(())
    }

    /// How fast all connections together are read from now on, those of the inboxes beside it too; what comes faster
    /// waits.
    pub fn limit_all(&mut self, rate: Option<Rate>) {
        self.budget.set(rate);
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
        (!self.queue.is_empty()).then(|| self.budget.next_at()).flatten()
    }

    /// What was held is decoded by the next [`Inbox::decode`].
    pub fn release(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.get_mut(connection) else { return };
        reception.is_held = reception.is_ended();
        if !reception.is_held && reception.waiting_bytes() > 0 {
            enqueue(&mut self.queue, reception, connection);
        }
    }

    /// True if bytes wait on a connection that is not held, and need not wait for the limit of all.
    pub fn ready(&self) -> bool {
        !self.arena.is_empty() || !self.queue.is_empty() && !self.budget.is_spent()
    }

    /// Connections from which nothing came for longer than their protocol allows.
    pub fn silent(&self, now: Timestamp) -> Vec<Connection> {
        let silent = self.receptions.iter().filter(|(_, reception)| reception.is_silent(now));
        silent.map(|(connection, _)| connection).collect()
    }

    fn reception(&mut self, connection: Connection) -> Result<&mut Reception<D>> {
        let reception = self.receptions.get_mut(connection).map(AsMut::as_mut);
        reception.ok_or_else(|| unknown(connection))
    }

    /// The turn is full: moves what this connection has in it to its backlog, so that order is kept.
    fn defer(&mut self, connection: Connection) {
        let Some(reception) = self.receptions.get_mut(connection) else { return };
        if reception.fed_bytes == 0 {
            return;
        }
        for bytes in self.arena.of(connection) {
            reception.backlog().extend_from_slice(bytes);
        }
        reception.fed_bytes = 0;
        self.arena.forget(connection);
        enqueue(&mut self.queue, reception, connection);
    }
}

fn enqueue<D>(queue: &mut Vec<Connection>, reception: &mut Reception<D>, connection: Connection) {
    if !reception.is_queued {
        reception.is_queued = true;
        queue.push(connection);
    }
}

fn unknown(connection: Connection) -> Error {
    Error::Invalid(format!("connection {} is not open", connection.0))
}
