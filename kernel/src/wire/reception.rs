//! What arrives on one connection: bytes to frames, in order, as far as it may go on.
//!
//! Owns: the bytes that are not decoded yet, and whether the connection is held, queued or at its end.
//! Never: knows what a frame says; its protocol's decoder does.
//!
//! Invariants:
//! 1. While the connection is neither held nor queued, its backlog is empty or the beginning of one frame.
//! 2. A byte is copied a bounded number of times, however its frame is split.
//! 3. Nothing is allocated for a frame before its bytes have come.

use super::backlog::Backlog;
use super::decoder::{Breach, Decoder, Event};
use super::rate::{Allowance, Rate};
use crate::flow::Arrivals;
use crate::ids::{Connection, Timestamp};
use crate::limits::{TURN_BYTES_MAXIMUM, TURN_CONNECTION_BYTES_MAXIMUM, TURN_DECODED_BYTES_MAXIMUM};
use std::ops::Range;

/// How far a frame that was taken reaches, and what of it the caller decides on.
type Taken<D> = (usize, Option<<D as Decoder>::Control>);

/// One connection's receiving side.
#[derive(Debug)]
pub struct Reception<D> {
    /// What its protocol knows of it.
    pub decoder: D,
    connection: Connection,
    heard_at: Timestamp,
    backlog: Backlog,
    /// Bytes of this turn that wait in the arena.
    pub(super) fed_bytes: usize,
    /// What its first frame lacked when something last came.
    lacking_bytes: usize,
    /// A frame of this connection is being decided on.
    pub(super) is_held: bool,
    /// The backlog may hold whole frames, which the next decode takes.
    pub(super) is_queued: bool,
    /// The peer broke the protocol: nothing more is decoded.
    is_ended: bool,
    /// It sent more than may wait, or faster than it may: the next decode reports it.
    breach: Option<Breach>,
    /// How fast it may send.
    pub(super) rate: Option<Box<Rate>>,
}

impl<D: Decoder> Reception<D> {
    /// A connection of which nothing is known.
    pub fn new(connection: Connection) -> Reception<D> {
        Reception {
            decoder: D::new(connection),
            connection,
            heard_at: Timestamp(0),
            backlog: Backlog::default(),
            fed_bytes: 0,
            lacking_bytes: 0,
            is_held: false,
            is_queued: false,
            is_ended: false,
            breach: None,
            rate: None,
        }
    }

    /// `count` bytes came at `now`. A breach if they are more than may wait, or came faster than they may.
    pub(super) fn heard(&mut self, count: usize, now: Timestamp) -> Result<(), Breach> {
        self.heard_at = now;
        let unread = self.is_held || self.is_queued;
        if let Some(rate) = self.rate.as_mut().filter(|_| count > 0) {
            // Once the connection is decoded again, all that waits is decoded in one go, and its messages count then.
            match unread {
                true => rate.advance_unread(now),
                false => rate.advance(now),
            }
            if !rate.spend(0, count) && !D::HOLDS_WHO_IS_TOO_FAST {
                return Err(Breach::TooFast);
            }
        }
        let maximum = self.decoder.frame_bytes_maximum().saturating_add(TURN_CONNECTION_BYTES_MAXIMUM);
        if self.waiting_bytes().saturating_add(count) > maximum {
            return Err(Breach::TooMuchWaits);
        }
        Ok(())
    }

    /// True if nothing came for longer than its protocol allows.
    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        let silent_us = now.0.saturating_sub(self.heard_at.0);
        !self.is_ended && self.decoder.silence_us().is_some_and(|allowed_us| silent_us > allowed_us)
    }

    /// True after a fault.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Bytes that wait undecoded.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.backlog.waiting().len() + self.fed_bytes
    }

    /// How many bytes the first frame that waits lacks after `bytes` came, as far as its header tells.
    #[inline]
    pub(super) fn lacks(&mut self, bytes: &[u8]) -> usize {
        self.lacking_bytes = if self.fed_bytes == bytes.len() {
            let begun = self.backlog.waiting();
            let header = self.header(if begun.is_empty() { bytes } else { begun });
            let size = header.ok().flatten().map_or(0, |(_, size)| size);
            size.saturating_sub(self.waiting_bytes())
        } else {
            self.lacking_bytes.saturating_sub(bytes.len())
        };
        self.lacking_bytes
    }

    /// The next decode reports this breach.
    pub(super) fn end(&mut self, breach: Breach) {
        self.breach = Some(breach);
        self.backlog.clear();
    }

    /// Where bytes go that cannot be decoded in this turn.
    pub(super) fn backlog(&mut self) -> &mut Vec<u8> {
        self.backlog.end()
    }

    /// The turn has no room for these bytes, which waited in the arena.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.fed_bytes = self.fed_bytes.saturating_sub(bytes.len());
        if !self.is_ended {
            self.backlog.end().extend_from_slice(bytes);
        }
    }

    /// Decodes `piece` of the arena, after what came before it.
    pub(super) fn decode_piece(
        &mut self,
        piece: Range<usize>,
        allowance: Allowance,
        arrivals: &mut Arrivals,
        events: &mut Vec<(Connection, Event<D>)>,
    ) {
        self.fed_bytes = self.fed_bytes.saturating_sub(piece.len());
        let mut at = piece.start;
        let mut spent = allowance.is_spent(arrivals.totals.messages(), 0);
        if !self.backlog.waiting().is_empty() && !self.is_held && !self.is_queued && !spent {
            at = match self.complete(piece.clone(), arrivals) {
                Ok((at, control)) => {
                    self.report(control.map(Ok), events);
                    at
                }
                Err(fault) => return self.report(Some(Err(fault)), events),
            };
        }
        let (start, before) = (at, arrivals.bytes.len());
        while !self.is_held && !self.is_queued && !self.is_ended {
            let decoded = arrivals.bytes.len();
            spent = allowance.is_spent(arrivals.totals.messages(), at - start + decoded - before)
                || decoded >= TURN_DECODED_BYTES_MAXIMUM;
            if spent {
                break;
            }
            match self.step(at, piece.end, arrivals) {
                Ok(None) => break,
                Ok(Some((size, control))) => {
                    at += size;
                    self.report(control.map(Ok), events);
                }
                Err(fault) => return self.report(Some(Err(fault)), events),
            }
        }
        if !self.is_ended {
            let rest = arrivals.bytes.get(at..piece.end).unwrap_or_default();
            self.backlog.end().extend_from_slice(rest);
            self.is_queued |= spent && !rest.is_empty() && !self.is_held;
        }
    }

    /// Decodes what waits in the backlog, as far as one turn goes.
    pub(super) fn decode_backlog(
        &mut self,
        allowance: Allowance,
        arrivals: &mut Arrivals,
        events: &mut Vec<(Connection, Event<D>)>,
    ) {
        self.is_queued = false;
        if let Some(breach) = self.breach.take() {
            return self.report(Some(Err(self.decoder.fault(breach))), events);
        }
        let before = arrivals.bytes.len();
        while !self.is_held && !self.is_ended {
            let waiting = self.backlog.waiting();
            let spent = allowance.is_spent(arrivals.totals.messages(), arrivals.bytes.len() - before);
            if spent || arrivals.bytes.len() >= TURN_BYTES_MAXIMUM {
                self.is_queued = true;
                break;
            }
            let (header, size) = match self.header(waiting) {
                Ok(Some((header, size))) if size <= waiting.len() => (header, size),
                Ok(_) => break,
                Err(fault) => return self.report(Some(Err(fault)), events),
            };
            let start = arrivals.bytes.len();
            arrivals.bytes.extend_from_slice(waiting.get(..size).unwrap_or_default());
            self.backlog.consume(size);
            let control = self.decoder.take(&header, start, arrivals, self.rate.as_deref_mut());
            self.report(control.transpose(), events);
        }
        self.backlog.compact(!self.is_held && !self.is_queued);
    }

    fn report(&mut self, event: Option<Event<D>>, events: &mut Vec<(Connection, Event<D>)>) {
        let Some(event) = event else { return };
        self.is_held = true;
        let event = event.map_err(|fault| self.decoder.addressed(fault));
        if event.is_err() {
            self.is_ended = true;
            self.backlog.clear();
        }
        events.push((self.connection, event));
    }

    /// Completes the frame that began in an earlier turn with the start of `piece`, and takes it; returns where the
    /// next frame starts.
    fn complete(&mut self, piece: Range<usize>, arrivals: &mut Arrivals) -> Result<Taken<D>, D::Fault> {
        let mut at = piece.start;
        loop {
            let begun = self.backlog.waiting();
            let found = self.header(begun)?;
            let needed = found.as_ref().map_or(1, |(_, size)| size.saturating_sub(begun.len()));
            if let (0, Some((header, size))) = (needed, found) {
                let start = arrivals.bytes.len();
                arrivals.bytes.extend_from_slice(begun);
                self.backlog.consume(size);
                self.backlog.compact(true);
                return Ok((at, self.decoder.take(&header, start, arrivals, self.rate.as_deref_mut())?));
            }
            let end = at.saturating_add(needed).min(piece.end);
            if at == end {
                return Ok((at, None));
            }
            self.backlog.end().extend_from_slice(arrivals.bytes.get(at..end).unwrap_or_default());
            at = end;
        }
    }

    /// Takes the frame at `at` of the arena if it is whole; returns its size.
    #[inline]
    fn step(&mut self, at: usize, end: usize, arrivals: &mut Arrivals) -> Result<Option<Taken<D>>, D::Fault> {
        let waiting = arrivals.bytes.get(at..end).unwrap_or_default();
        match self.header(waiting)? {
            Some((header, size)) if size <= waiting.len() => {
                let control = self.decoder.take(&header, at, arrivals, self.rate.as_deref_mut())?;
                Ok(Some((size, control)))
            }
            _ => Ok(None),
        }
    }

    /// The header at the start of `bytes`, with the size of its frame.
    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<Option<(D::Header, usize)>, D::Fault> {
        let Some(header) = self.decoder.header(bytes)? else { return Ok(None) };
        let size = D::size_bytes(&header);
        if size > self.decoder.frame_bytes_maximum() {
            return Err(self.decoder.fault(Breach::FrameTooLarge));
        }
        Ok(Some((header, size)))
    }
}
